"""What fairseq expects of libraries that have changed since: done once, before fairseq uses them."""

import logging
import types
import warnings
from importlib.util import find_spec
from typing import Any

import numpy
import torch

from fairseq_poolingformer.attention import keep_freed_memory
from fairseq_poolingformer.patching import stand_in

logger = logging.getLogger(__name__)


def require_safe_torch() -> None:
    """Refuse a torch whose ``weights_only`` a checkpoint can get around."""
    if tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 10):
        raise ImportError(
            f"fairseq_poolingformer needs torch 2.10 or later, and this is torch {torch.__version__}: before 2.10, "
            "torch.load may run code that a checkpoint holds. Install a newer torch."
        )


def restore_names_of_numpy() -> None:
    """Give fairseq's modules, and no others, the numpy names they were written with.

    - ``np.compat.long``: ``--sample-break-mode eos`` (token_block_dataset) and ``--num-batch-buckets``
      (language_pair_dataset);
    - ``np.percentile(interpolation=)``: ``--num-batch-buckets`` (data_utils.get_buckets);
    - ``np.int``: span masking (data_utils); ``np.float``: the CRF layer of the non-autoregressive models.
    """
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    former = {"compat": types.SimpleNamespace(long=int), "int": int, "float": float, "percentile": percentile}
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        vars(stand_in(module, "np")).update(former)


def percentile(a: Any, q: Any, *args: Any, interpolation: str | None = None, **kwargs: Any) -> Any:
    """``numpy.percentile`` that also knows ``method`` by its former name, ``interpolation``."""
    if interpolation is not None:
        kwargs["method"] = interpolation
    return numpy.percentile(a, q, *args, **kwargs)


def use_apex_only_with_its_kernels() -> None:
    """Give fairseq PyTorch's layer normalization where apex has no kernel for its own.

    fairseq takes apex's ``FusedLayerNorm`` on a GPU whenever apex can be imported. An apex built without its CUDA
    extensions can be imported too, and then fails in the first layer normalization that is built.
    """
    from fairseq.modules import layer_norm

    if layer_norm.has_fused_layernorm and find_spec("fused_layer_norm_cuda") is None:
        layer_norm.has_fused_layernorm = False
        logger.warning(
            "apex is installed without its CUDA kernels and is not used; docs/fairseq.md says how to build them"
        )


def keep_freed_memory_without_a_gpu() -> None:
    """Call :func:`~fairseq_poolingformer.attention.keep_freed_memory` on a machine without a GPU.

    With a GPU the tensors that come and go are there, and the processes of a node would keep what loading and saving
    checkpoints took.
    """
    if not torch.cuda.is_available():
        keep_freed_memory()


def hide_warnings_about_fairseq() -> None:
    """Hide warnings about fairseq's own code, which asks for pinned memory on every machine, and for old interfaces."""
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no accelerator")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\..* is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, message=r"(?s).*hydra\.cc/docs")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")


def let_masked_lm_find_its_bpe() -> None:
    """Give fairseq's masked_lm the ``args`` from which ``--mask-whole-words`` reads the word boundaries.

    The task hands ``self.args`` to ``get_whole_word_mask``, but has had no such attribute since its options moved to a
    dataclass. The bpe is beside the task in the whole configuration.
    """
    from fairseq.tasks.masked_lm import MaskedLMTask

    if not hasattr(MaskedLMTask, "args"):
        MaskedLMTask.args = property(_whole_word_bpe)


def _whole_word_bpe(task: Any) -> Any:
    """Return the ``bpe`` part of the configuration."""
    if not task.cfg.mask_whole_words:
        raise AttributeError(f"{type(task).__name__!r} object has no attribute 'args'")
    bpe = getattr(task.cfg._get_root(), "bpe", None)
    if bpe is None or getattr(bpe, "_name", None) is None:
        raise ValueError(
            "--mask-whole-words needs to know where words begin: give --bpe (for instance --bpe gpt2 with "
            "--gpt2-encoder-json and --gpt2-vocab-bpe, or --bpe sentencepiece with --sentencepiece-model)"
        )
    return bpe

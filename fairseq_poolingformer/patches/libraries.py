"""fairseq on current Python, torch, numpy and hydra, and beside what else is installed."""

import logging
import types
import warnings
from importlib.util import find_spec
from typing import Any

import numpy
import torch

from fairseq_poolingformer.attention import keep_freed_memory
from fairseq_poolingformer.extras import TORCH, is_too_old
from fairseq_poolingformer.patching import stand_in

logger = logging.getLogger(__name__)


def require_safe_torch() -> None:
    """Refuse a torch whose ``weights_only`` a checkpoint can get around."""
    if is_too_old(torch.__version__, TORCH):
        raise ImportError(
            f"fairseq_poolingformer needs {TORCH}, and this is torch {torch.__version__}: install a newer one, since "
            "this one's torch.load may run code that a checkpoint holds"
        )


def restore_names_of_numpy() -> None:
    """Give fairseq's modules, and no others, the numpy names they were written with."""
    # np.compat.long for --sample-break-mode eos and --num-batch-buckets, percentile(interpolation=) for the latter,
    # np.int for span masking, np.float for the CRF layer of the non-autoregressive models
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
    """Give fairseq PyTorch's layer normalization where apex is built without its CUDA kernel, and would fail."""
    from fairseq.modules import layer_norm

    if layer_norm.has_fused_layernorm and find_spec("fused_layer_norm_cuda") is None:
        layer_norm.has_fused_layernorm = False
        logger.warning(
            "apex is installed without its CUDA kernels and is not used; docs/fairseq.md says how to build them"
        )


def keep_freed_memory_without_a_gpu() -> None:
    """Call :func:`~fairseq_poolingformer.attention.keep_freed_memory` where tensors that come and go are on no GPU."""
    if not torch.cuda.is_available():
        keep_freed_memory()


def hide_warnings_about_fairseq() -> None:
    """Hide warnings about fairseq's own code, which asks for pinned memory on every machine, and for old interfaces."""
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no accelerator")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\..* is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, message=r"(?s).*hydra\.cc/docs")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")


def let_masked_lm_find_its_bpe() -> None:
    """Give fairseq's masked_lm the ``args`` from which ``--mask-whole-words`` reads the word boundaries."""
    # the task lost this attribute when its options moved to a dataclass; the bpe is beside it in the configuration
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

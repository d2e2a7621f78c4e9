"""fairseq on current torch, numpy and hydra, and beside an apex that is installed."""

import logging
import types
import warnings
from importlib.util import find_spec

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


def use_apex_only_with_its_kernels() -> None:
    """Give fairseq PyTorch's layer normalization where apex is built without its CUDA kernel, and would fail."""
    from fairseq.modules import layer_norm

    if layer_norm.has_fused_layernorm and find_spec("fused_layer_norm_cuda") is None:
        layer_norm.has_fused_layernorm = False
        logger.warning(
            "apex is installed without its CUDA kernels and is not used; docs/fairseq.md says how to build them"
        )


def restore_compat_of_numpy() -> None:
    """Give fairseq's blocks the name of numpy that ``--sample-break-mode eos`` of its own tasks asks for."""
    from fairseq.data import token_block_dataset

    stand_in(token_block_dataset, "np").compat = types.SimpleNamespace(long=int)


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

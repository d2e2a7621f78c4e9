"""NVIDIA apex is used only where its CUDA kernels are built."""

import logging
from importlib.util import find_spec

logger = logging.getLogger(__name__)


def apply() -> None:
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

"""Private names of transformers, torch and fairseq that this package uses: the only list of them.

transformers has no upper bound in setup.py, so a release without one of its names is named where it is imported.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator
from pkgutil import resolve_name

TRIED = "5.23 and 5.24"  # of transformers
TRANSFORMERS = (
    "transformers:PreTrainedConfig._attn_implementation",
    "transformers:PreTrainedModel._can_record_outputs",
    "transformers:PreTrainedModel._hf_peft_config_loaded",
    "transformers:PreTrainedModel._init_weights",
    "transformers:PreTrainedModel._upload_modified_files",
)
ARGUMENTS = (  # of transformers.utils.hub.cached_files
    "_raise_exceptions_for_connection_errors",
    "_raise_exceptions_for_gated_repo",
    "_raise_exceptions_for_missing_entries",
)
TORCH = (
    "torch:_dynamo",
    "torch:_C._SetExcludeDispatchKeyGuard",
    "torch:Tensor._version",
    "torch:_utils._flatten_dense_tensors",
    "torch:ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "torch:ops.mkldnn._is_mkldnn_bf16_supported",
    "torch.nn:Module._apply",
    *(
        f"torch.nn.modules.module:_global_{kind}_hooks"
        for kind in ("backward", "backward_pre", "forward", "forward_pre")
    ),
)
FAIRSEQ = (
    "fairseq.data.iterators:EpochBatchIterator._get_iterator_for_epoch",
    "fairseq.modules:MultiheadAttention._get_input_buffer",
    "fairseq.modules:MultiheadAttention._set_input_buffer",
    "fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram",
    "fairseq.trainer:Trainer._check_grad_norms",
    "fairseq_cli.generate:_main",
    "hydra._internal.utils:sys",
    "omegaconf:DictConfig._get_root",
)
INSTANCES = {  # class -> private attributes of its instances
    "torch.nn:Module": ("_modules", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"),
    "fairseq.data.iterators:CountingIterator": ("_itr",),
    "fairseq.distributed.utils:get_global_group": ("_global_group",),
    "fairseq.modules:SinusoidalPositionalEmbedding": ("_float_tensor",),
    "fairseq.optim.dynamic_loss_scaler:DynamicLossScaler": (
        *("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale"),
    ),
}


@contextlib.contextmanager
def tried_transformers() -> Iterator[None]:
    """Name the tried versions of transformers where a block of imports misses one of its names."""
    try:
        for name in TRANSFORMERS:
            resolve_name(name)
        yield
    except (ImportError, AttributeError) as error:
        if "transformers" not in f"{error} {getattr(error, 'obj', '')}":
            raise
        version = importlib.metadata.version("transformers")
        raise ImportError(
            f"transformers {version} lacks a name that fairseq_poolingformer uses ({error}): install one that it was "
            f"tried with, {TRIED}"
        ) from error

"""Fixes of what fairseq computes wrongly, or cannot do on current Python, torch and numpy, or without a GPU."""

import logging
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from types import TracebackType
from typing import Any

import numpy
import torch
from hydra.errors import HydraException
from torch import Tensor
from torch.multiprocessing import ProcessRaisedException

from fairseq_poolingformer.attention import keep_freed_memory
from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.command import UsageError, sentence
from fairseq_poolingformer.extras import TORCH, MissingLibraryError, is_too_old
from fairseq_poolingformer.patches.untrusted_files import DictionaryError
from fairseq_poolingformer.patching import stand_in
from fairseq_poolingformer.text.data_folder import FolderError
from fairseq_poolingformer.training.nonfinite import NonfiniteError

logger = logging.getLogger(__name__)

# libraries


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


# options of commands


def keep_bf16_from_meaning_tpu(
    original: Callable, parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Keep ``--bf16`` from switching to TPU mode, which fairseq knows no other use of; ``--tpu`` still does."""
    parsed = original(parser, input_args, *args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    words = sys.argv[1:] if input_args is None else input_args
    asked_for_tpu = "--tpu" in words or parser.get_default("tpu")
    if getattr(namespace, "bf16", False) and not asked_for_tpu:
        namespace.tpu = False
    return parsed


def show_help_of_arch_and_task(
    original: Callable, parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Make ``--help`` beside ``--arch`` show the flags of that model, and of the task and the criterion."""
    # fairseq parses twice, the first time for these names alone, where --help ended
    flags = {str(word).partition("=")[0] for word in (sys.argv[1:] if input_args is None else input_args)}
    if not ({"-h", "--help"} & flags and {"-a", "--arch"} & flags):
        return original(parser, input_args, *args, **kwargs)
    return original(parser, input_args, *args, **{**kwargs, "modify_parser": _helping_late(kwargs)})


def _helping_late(kwargs: dict[str, Any]) -> Callable[[Any], None]:
    """Return a ``modify_parser``, which fairseq calls before it parses each time: no help the first time."""
    modify = kwargs.get("modify_parser")
    silenced = []

    def modify_parser(parser: Any) -> None:
        if modify is not None:
            modify(parser)
        if silenced:
            silenced.pop()()
            return
        print_help, leave = parser.print_help, parser.exit

        def restore() -> None:
            parser.print_help, parser.exit = print_help, leave

        silenced.append(restore)
        parser.print_help = lambda file=None: None
        parser.exit = lambda status=0, message=None: leave(status, message) if status else None

    return modify_parser


# processes that read batches


def end_workers_with_their_epoch(original: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    """End the processes that read data with their epoch: fairseq makes others for the next, and leaves these behind."""
    original(self, *args, **kwargs)
    self.persistent_workers = False


def release_after_the_last_item(original: Callable, self: Any) -> Any:
    """Release the source of an iterator, and so its processes, when its last item has come."""
    item = original(self)
    if not self.has_next():
        self._itr = iter(())
    return item


def refuse_split_that_counts_nothing(original: Callable, self: Any, subset: str, *args: Any, **kwargs: Any) -> Any:
    """Refuse a validation split in which no example counts: fairseq fails without batches, or logs a loss of 0."""
    dataset = self.task.dataset(subset)
    if getattr(dataset, "num_counted", lambda: True)():
        return original(self, subset, *args, **kwargs)
    raise UsageError(
        f"--valid-subset {subset}: none of its {len(dataset)} examples has what the task counts, such as a label, "
        "or an answer in the part that is read; give another split, or --disable-validation"
    )


# computation


def set_decoder_beam_size(self: Any, beam_size: int) -> None:
    """Tell decoders of a greedy search, too: fairseq's would go on with the number of the search before."""
    for model in self.models:
        if hasattr(model, "set_beam_size"):
            model.set_beam_size(beam_size)


def _no_repeat_ngram(self, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int) -> Tensor:
    """Ban the tokens that would repeat an n-gram of the hypothesis; TorchScript compiles this function, by its name."""
    # fairseq's fallback takes the end of the search's buffer for that of the hypothesis: nothing is ever banned
    size: int = self.no_repeat_ngram_size
    written = tokens[:, : step + 1]
    if written.size(1) < size:
        return lprobs
    ngrams = written.unfold(1, size, 1)  # (rows, number of n-grams, size)
    latest = written[:, written.size(1) - size + 1 :].unsqueeze(1)
    repeated = (ngrams[:, :, :-1] == latest).all(-1)
    repeated &= ngrams[:, :, -1] != tokens[:, :1]  # the search begins with </s>, which must stay possible
    ceiling = torch.where(repeated, float("-inf"), float("inf")).to(lprobs)
    return lprobs.scatter_reduce_(1, ngrams[:, :, -1], ceiling, "amin")


def copy_integer_buffers(
    original: Callable, self: Any, model: Any, config: Any, device: Any = None, skip_keys: Any = None
) -> None:
    """Copy a model's integer buffers into the average of ``--store-ema``, where fairseq multiplies by the decay."""
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    integers = {name for name, value in tensors.items() if not value.is_floating_point()}
    original(self, model, config, device, integers | set(skip_keys or ()))


def leave_fp16_unflattened_on_cpu(original: Callable, cls: type, cfg: Any, params: Iterable, **kwargs: Any) -> Any:
    """Turn on ``--fp16-no-flatten-grads`` on a CPU, so that ``--fp16`` trains there; the updates are the same."""
    from omegaconf import open_dict

    params = list(params)
    on_cpu = all(param.device.type == "cpu" for param in params)
    if on_cpu and not cfg.common.bf16 and not cfg.common.fp16_no_flatten_grads:
        logger.info("parameters are on the CPU: --fp16 uses --fp16-no-flatten-grads")
        with open_dict(cfg.common):
            cfg.common.fp16_no_flatten_grads = True
    return original(cls, cfg, params, **kwargs)


def clip_where_the_gradients_are(
    original: Callable, params: Tensor | Iterable[Tensor], max_norm: float, aggregate_norm_fn: Callable | None = None
) -> Tensor:
    """Clip gradients on their own device, so that ``--cpu`` trains beside a GPU, where fairseq puts the norm."""
    params = [params] if isinstance(params, Tensor) else list(params)
    devices = [param.grad.device for param in params if param.grad is not None]

    def aggregate(norm: Tensor) -> Tensor:
        norm = norm if aggregate_norm_fn is None else aggregate_norm_fn(norm)
        return norm.to(devices[0])

    return original(params, max_norm, aggregate)


# errors that are written for people

FOR_PEOPLE = (CheckpointError, DictionaryError, FolderError, HydraException)
FOR_PEOPLE += (MissingLibraryError, NonfiniteError, UsageError)
# of options, fairseq's and torch's, and of a missing --path
OF_OPTIONS = re.compile(r"--[a-z]|dropout probability|num_workers option|embed_dim must be|Model file not found")
ERROR = "error: "
PACKAGE = Path(__file__).parents[1]


def print_reason_last(
    original: Callable, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print the sentence of an error for people alone; of one that is wrapped in others, below their traceback."""
    if not _is_sentence(error, traceback):
        original(kind, error, traceback)
    if not isinstance(error, ProcessRaisedException):  # which ends with the line
        _print_reason(error)


def print_reason_before_exit(original: Callable, *status: Any) -> None:
    """Print the reason of the error that hydra has printed, and ends the process for, without ``sys.excepthook``."""
    _print_reason(sys.exc_info()[1])
    original(*status)


def send_reason_last(original: Callable, text: str, file: Any) -> None:
    """Put the reason of an error in a process that fairseq-train started at the end of what its parent will print."""
    reason = _reason(sys.exc_info()[1])
    original(text if reason is None else f"{text.rstrip()}\n{ERROR}{reason}", file)


def _print_reason(error: BaseException | None) -> None:
    reason = _reason(error)
    if reason is not None:
        print(f"{ERROR}{reason}", file=sys.stderr)


def _reason(error: BaseException | None) -> str | None:
    """The sentence of the first error that is written for people or names a file, from the outermost one inwards."""
    while isinstance(error, Exception):
        if isinstance(error, ProcessRaisedException) and f"\n{ERROR}" in str(error):
            return str(error).rpartition(f"\n{ERROR}")[2]
        is_of_file = isinstance(error, OSError) and error.filename is not None
        if is_of_file or _is_sentence(error, error.__traceback__):
            return sentence(error)
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    return None


def _is_sentence(error: BaseException, traceback: TracebackType | None) -> bool:
    """Whether an error is for people, of an option, or the plugin raises it for a mistake, or cannot read a file."""
    if isinstance(error, FOR_PEOPLE):
        return True
    if type(error) in (ValueError, AssertionError, OSError) and OF_OPTIONS.search(str(error)):
        return True
    frames = extract_tb(traceback)
    if not frames or not Path(frames[-1].filename).is_relative_to(PACKAGE):
        return False
    is_raised = (frames[-1].line or "").startswith("raise ")  # not by Python, as that of int("x") is
    is_of_file = isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError)
    return is_of_file or (type(error) is ValueError and is_raised)

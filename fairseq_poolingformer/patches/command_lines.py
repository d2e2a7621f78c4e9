"""Options of fairseq's commands, and their last line: the reason of a failure."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from types import TracebackType
from typing import Any

from hydra.errors import HydraException
from torch.multiprocessing import ProcessRaisedException

from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.command import UsageError, sentence
from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.patches.untrusted_files import DictionaryError
from fairseq_poolingformer.text.data_folder import FolderError
from fairseq_poolingformer.training.nonfinite import NonfiniteError

FOR_PEOPLE = (CheckpointError, DictionaryError, FolderError, HydraException)
FOR_PEOPLE += (MissingLibraryError, NonfiniteError, UsageError)
# of options, fairseq's and torch's, and of a missing --path
OF_OPTIONS = re.compile(r"--[a-z]|dropout probability|num_workers option|embed_dim must be|Model file not found")
ERROR = "error: "
PACKAGE = Path(__file__).parents[1]


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


def refuse_split_that_counts_nothing(original: Callable, self: Any, subset: str, *args: Any, **kwargs: Any) -> Any:
    """Refuse a validation split in which no example counts: fairseq fails without batches, or logs a loss of 0."""
    dataset = self.task.dataset(subset)
    if getattr(dataset, "num_counted", lambda: True)():
        return original(self, subset, *args, **kwargs)
    raise UsageError(
        f"--valid-subset {subset}: none of its {len(dataset)} examples has what the task counts, such as a label, "
        "or an answer in the part that is read; give another split, or --disable-validation"
    )


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

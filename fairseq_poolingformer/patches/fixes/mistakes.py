"""A mistake in a command of fairseq ends with a sentence; only a fault of the programs themselves has a traceback."""

import dis
import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader.errors import CheckpointError, MissingCheckpointError
from fairseq_poolingformer.patches.long_jobs.nonfinite import NonfiniteError
from fairseq_poolingformer.patches.untrusted_files.checkpoints import WRONG_PARAMETERS, one_line_with_kind
from fairseq_poolingformer.patches.untrusted_files.data_files import DictionaryError

PACKAGES = ("fairseq_poolingformer", "preprocess", "fairseq", "fairseq_cli")
ENVIRONMENT = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC}
ENVIRONMENT |= {errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG, errno.EIO}
# begin errors of fairseq that are assertions and plain Exceptions; others that name a flag are for people, too
FOR_PEOPLE = re.compile(
    r"Must specify batch size|The dataset is empty|min_len cannot be larger|Could not infer language|Size of sample"
    r"|--\w"
)
OUT_OF_MEMORY = (
    "the GPU's memory does not hold a batch: lower --batch-size or --max-tokens and raise --update-freq instead, or "
    "give --checkpoint-activations"
)


def print_one_sentence(
    original: Callable, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print the message alone of an error whose message says all that is needed.

    These are errors that were raised for people and end a command of fairseq, where ``LOGLEVEL=DEBUG`` brings the
    traceback back; and in every process those of files that cannot be used, and of gradients that are not finite.
    """
    # fairseq's commands read the variable; the level itself is DEBUG after imports that some of them make
    is_quiet = os.environ.get("LOGLEVEL", "").upper() != "DEBUG"
    said = sentence(error, traceback) if is_quiet and _is_command() else None
    if said is None and isinstance(error, CheckpointError | DictionaryError | NonfiniteError):
        said = str(error)
    elif said is None and kind is Exception and str(error).startswith(WRONG_PARAMETERS):
        said = f"{error} ({one_line_with_kind(error.__context__)})"
    if said is None:
        original(kind, error, traceback)
    else:
        print(f"error: {said}", file=sys.stderr)


def _is_command() -> bool:
    name = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) or ""
    return name.startswith("fairseq_cli.") or Path(sys.argv[0]).name.startswith("fairseq-")


def sentence(error: BaseException, traceback: TracebackType | None) -> str | None:
    """The message of an error that says what to do; None of one that is a fault of the program.

    Such an error was raised by a statement of fairseq or of this project, not by one that failed, or the operating
    system refused a file.

    Args:
        error: the error.
        traceback: from where it was caught to where it was raised.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in ENVIRONMENT and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    if not str(error) or not _was_raised_on_purpose(traceback):
        return None
    if isinstance(error, ValueError | OSError):
        return _on_one_line(error)
    is_plain = type(error) in (Exception, AssertionError, RuntimeError, NotImplementedError)
    return _on_one_line(error) if is_plain and FOR_PEOPLE.search(str(error)) else None


def _was_raised_on_purpose(traceback: TracebackType | None) -> bool:
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    instruction = frame.f_code.co_code[traceback.tb_lasti]
    module = getattr(frame.f_globals.get("__spec__"), "name", None) or frame.f_globals.get("__name__", "")
    return instruction == dis.opmap["RAISE_VARARGS"] and module.partition(".")[0] in PACKAGES


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def refuse_path_without_checkpoint(
    original: Callable,
    filenames: Any,
    arg_overrides: Any = None,
    task: Any = None,
    strict: bool = True,
    suffix: str = "",
    num_shards: int = 1,
    state: Any = None,
) -> Any:
    """Say what is wrong with a ``--path`` that is not a file."""
    for name in filenames:
        if name is None:
            raise MissingCheckpointError("give --path, the checkpoint to use")
        if num_shards == 1 and not suffix and "://" not in str(name):
            require_checkpoint(Path(name))
    return original(filenames, arg_overrides, task, strict, suffix, num_shards, state)


def require_checkpoint(path: Path) -> None:
    """Raise MissingCheckpointError, with what to give, where there is no such file."""
    if path.is_dir():
        names = sorted(file.name for file in path.glob("*.pt"))
        remedy = f"give a file of it: {', '.join(names)}" if names else "there is no .pt file in it"
        if (path / "config.json").is_file() and not names:
            remedy = "convert a Hugging Face folder with poolingformer-convert to-fairseq"
        raise MissingCheckpointError(f"{path}: a folder, not a checkpoint; {remedy}")
    if not path.exists():
        hub = "" if path.suffix or path.is_absolute() else "; a model of the Hugging Face Hub is downloaded first, and "
        remedy = f"{hub}converted with poolingformer-convert to-fairseq" if hub else ""
        raise MissingCheckpointError(f"{path}: no such checkpoint{remedy}")


def refuse_split_that_counts_nothing(original: Callable, self: Any, subset: str, *args: Any, **kwargs: Any) -> Any:
    """Say which validation split has no example that counts: fairseq fails without batches, or logs a loss of 0."""
    dataset = self.task.dataset(subset)
    if not getattr(dataset, "num_counted", dataset.__len__)():
        raise ValueError(
            f"--valid-subset {subset}: none of its {len(dataset)} examples has what the task counts, such as a label, "
            "or an answer in the part that is read; give another split, or --disable-validation"
        )
    return original(self, subset, *args, **kwargs)


def name_logged_metrics(
    original: Callable, cfg: Any, trainer: Any, stats: dict[str, Any], tracking_best: bool
) -> dict[str, Any]:
    """Name what is logged where ``--best-checkpoint-metric`` is not."""
    metric = cfg.checkpoint.best_checkpoint_metric
    if metric not in stats:
        raise ValueError(f"--best-checkpoint-metric {metric} is not logged; these are: {', '.join(sorted(stats))}")
    return original(cfg, trainer, stats, tracking_best)

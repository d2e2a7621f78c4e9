"""Checkpoints appear whole under their names, and a damaged last one does not end a run."""

import contextlib
import errno
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.compat.checkpoint_files import DAMAGE
from fairseq_poolingformer.compat.patching import replace

logger = logging.getLogger(__name__)

# what fairseq-train names its checkpoints, before the suffix; averages and other files may lie beside them
TRAINING_NAMES = r"checkpoint(?:\d+|_\d+_\d+|_best|\.best_.+)"
# of checkpoints that hold one part of a model or of its optimizer's state: parts of different updates do not fit
SUFFIXES_OF_PARTS = ("-shard", "-model_part-")


def apply() -> None:
    """Patch the writing of checkpoints, their copies under further names, and the choice of the one to resume from."""
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    replace(checkpoint_utils, "torch_persistent_save", written_whole)
    replace(PathManager, "copy", copied_whole)
    replace(checkpoint_utils, "load_checkpoint", from_the_newest_good_one)


def written_whole(original: Callable) -> Callable:
    """Write a checkpoint beside its name, and rename it when its last byte is on the disk.

    fairseq renames as well, but without waiting for the disk, so that a machine that loses its power can be left with
    an empty file. When a write fails, it writes the file again behind the bytes that are already there.

    Args:
        original: ``fairseq.checkpoint_utils.torch_persistent_save``.

    Returns:
        The function to use in its place.
    """

    def torch_persistent_save(obj: Any, filename: Any, async_write: bool = False) -> None:
        from fairseq.file_io import PathManager

        if async_write or not isinstance(filename, str | os.PathLike) or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write)
        with _whole(Path(filename)) as unfinished:
            torch.save(obj, unfinished)
        return None

    return torch_persistent_save


def copied_whole(original: Callable) -> Callable:
    """Give a checkpoint a further name, such as ``checkpoint_last.pt``, in one step.

    fairseq saves one file and copies it to its other names. A kill during the copy leaves a part of a file under a good
    name. Here both names are links to one file where the file system has hard links: quick, and half the space. No
    name is ever written to, only replaced.

    Args:
        original: ``fairseq.file_io.PathManager.copy``.

    Returns:
        The function to use in its place.
    """

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        from fairseq.file_io import PathManager

        if any(PathManager.path_requires_pathmanager(path) for path in (src_path, dst_path)):
            return original(src_path, dst_path, overwrite)
        _copy_whole(Path(src_path), Path(dst_path))
        return dst_path

    return copy


def _copy_whole(source: Path, target: Path) -> None:
    with _whole(target) as unfinished:
        try:
            os.link(source, unfinished)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, unfinished)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.unlink(missing_ok=True)
        yield unfinished
        _flush(unfinished)
        unfinished.replace(path)
        _flush_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        if "DataLoader worker" in str(error):
            raise  # a signal has ended a process that reads data, while this one was saving
        raise OSError(
            errno.EIO,
            f"the checkpoint could not be written ({_first_line(error)}). The checkpoints that were there before are "
            "whole. Free some space and run the same command again",
            str(path),
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(path: Path) -> None:
    try:
        _flush(path)
    except OSError as error:  # some network file systems flush files only
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def from_the_newest_good_one(original: Callable) -> Callable:
    """Resume from the newest checkpoint that is whole when ``checkpoint_last.pt`` is not.

    A damaged file keeps its bytes under another name, ``checkpoint_last.pt.damaged``.

    Args:
        original: ``fairseq.checkpoint_utils.load_checkpoint``.

    Returns:
        The function to use in its place.
    """

    def load_checkpoint(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        if cfg.restore_file == "checkpoint_last.pt":
            last = Path(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
            if trainer.data_parallel_rank == 0 and not any(name in last.name for name in SUFFIXES_OF_PARTS):
                replace_damaged(last)
            if torch.distributed.is_initialized():
                torch.distributed.barrier()
        return original(cfg, trainer, **kwargs)

    return load_checkpoint


def replace_damaged(last: Path) -> None:
    """Put the newest whole checkpoint of a training in place of its damaged last one, and say so.

    At every instant there is a last checkpoint: without one, the next start would train from the beginning.

    Args:
        last: the checkpoint to resume from, which may be missing.

    Raises:
        ValueError: it is damaged, and so is every other checkpoint of the folder.
    """
    if not last.is_file() or (fault := damage(last)) is None:
        return
    suffix = last.name.removeprefix("checkpoint_last")
    name = re.compile(TRAINING_NAMES + re.escape(suffix))
    others = [path for path in last.parent.iterdir() if name.fullmatch(path.name)]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        if damage(path) is None:
            damaged = last.with_name(f"{last.name}.damaged")
            _copy_whole(last, damaged)
            _copy_whole(path, last)
            logger.warning(f"{last} IS DAMAGED ({fault}) and is now {damaged.name}. RESUMING FROM {path.name} INSTEAD")
            return
    raise ValueError(
        f"{last} is damaged ({fault}), and its folder has no other checkpoint that is whole. Copy one there under this "
        "name, or remove it to start from the beginning"
    )


def damage(path: Path) -> str | None:
    """Say how a checkpoint file is damaged; None when every byte is what was written.

    Args:
        path: a file of ``torch.save``; of those in the format before torch 1.6, only the beginning is checked.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(2)
        if head == b"\x80\x02":
            return None
        if head != b"PK":
            return "it is empty" if not head else "it is not a file of torch"
        broken = zipfile.ZipFile(path).testzip()
    except DAMAGE as error:
        return _first_line(error)
    return None if broken is None else f"the checksum of {broken} in it is wrong"

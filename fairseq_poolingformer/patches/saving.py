"""Checkpoints appear whole, with dictionary and tokenizer beside them, and a damaged last one does not end a run."""

import contextlib
import errno
import filecmp
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.checkpoints import CheckpointError, DamagedCheckpointError, damage, first_line
from fairseq_poolingformer.text.atomic_write import atomic_write

logger = logging.getLogger(__name__)

# what fairseq-train names its checkpoints, before the suffix; averages and other files may lie beside them
TRAINING_NAMES = r"checkpoint(?:\d+|_\d+_\d+|_best(?:_\w+)?|\.best_.+)"
# of checkpoints that hold one part of a model or of its optimizer's state: parts of different updates do not fit
SUFFIXES_OF_PARTS = ("-shard", "-model_part-")


def gather_state_of_all_workers(original: Callable, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
    """Ask a task with ``gather_checkpoint_state`` on all workers; fairseq asks for its state on rank 0 alone."""
    if not cfg.no_save and hasattr(trainer.task, "gather_checkpoint_state"):
        trainer.task.gather_checkpoint_state()
    return original(cfg, trainer, epoch_itr, val_loss)


def write_checkpoint_whole(original: Callable, obj: Any, filename: Any, async_write: bool = False) -> None:
    """Write a checkpoint beside its name, and rename it when its last byte is on the disk (fairseq does not wait)."""
    from fairseq.file_io import PathManager

    if async_write or not isinstance(filename, str | os.PathLike) or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write)
    with _whole(Path(filename)) as unfinished:
        torch.save(obj, unfinished)
    return None


def copy_checkpoint_whole(original: Callable, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    """Give a checkpoint a further name in one step, by a hard link if possible: a killed copy would be a part."""
    from fairseq.file_io import PathManager

    if any(PathManager.path_requires_pathmanager(path) for path in (src_path, dst_path)):
        return original(src_path, dst_path, overwrite)
    _copy_whole(Path(src_path), Path(dst_path))
    return dst_path


def _copy_whole(source: Path, target: Path) -> None:
    with _whole(target) as unfinished:
        try:
            os.link(source, unfinished)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, unfinished)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    try:
        with atomic_write(path, flush=True) as unfinished:
            yield unfinished
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        if "DataLoader worker" in str(error):
            raise  # a signal has ended a process that reads data, while this one was saving
        raise OSError(
            errno.EIO,
            f"the checkpoint could not be written ({first_line(error)}). The checkpoints that were there before are "
            "whole. Free some space and run the same command again",
            str(path),
        ) from error


def resume_from_newest_whole(original: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Resume from the newest whole checkpoint when ``checkpoint_last.pt`` is not; that is kept as ``.damaged``."""
    if cfg.restore_file != "checkpoint_last.pt" or cfg.save_dir is None:
        return original(cfg, trainer, **kwargs)
    last = Path(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    is_part = any(name in last.name for name in SUFFIXES_OF_PARTS)
    with _by_the_first_process(trainer, waiting=True) as is_first:
        if is_first and not last.exists() and not getattr(cfg, "continue_once", None):
            replace_missing(last, cfg.finetune_from_model, is_wanted=not cfg.no_last_checkpoints)
    try:
        return original(cfg, trainer, **kwargs)
    except DamagedCheckpointError as error:
        if is_part or not last.is_file():
            raise
        fault = str(error)
    # fairseq lets only the first process read, while the others wait for what it sends, unless all shall read
    with _by_the_first_process(trainer, waiting=cfg.load_checkpoint_on_all_dp_ranks) as is_first:
        if is_first:
            replace_damaged(last, fault)
    return original(cfg, trainer, **kwargs)


@contextlib.contextmanager
def _by_the_first_process(trainer: Any, waiting: bool) -> Iterator[bool]:
    """Give the block whether this process is the first one; with ``waiting``, all begin and end it together."""
    waiting = waiting and torch.distributed.is_initialized()
    if waiting:
        torch.distributed.barrier()
    yield trainer.data_parallel_rank == 0
    if waiting:
        torch.distributed.barrier()


def replace_missing(last: Path, pretrained: str | None = None, is_wanted: bool = True) -> None:
    """Where a training's last checkpoint is missing beside others, put the newest whole one there, and say so."""
    start = pretrained and Path(pretrained).resolve()
    others = [path for path in _others(last) if path.resolve() != start] if last.parent.is_dir() else []
    remedy = "Give the one to continue from with --restore-file, or another --save-dir to start from the beginning"
    if not others:
        return
    if not is_wanted or any(name in last.name for name in SUFFIXES_OF_PARTS):
        raise CheckpointError(f"{last} is missing, and its folder has other checkpoints. {remedy}")
    for path in others:
        if damage(path) is None:
            _copy_whole(path, last)
            logger.warning(f"{last} IS MISSING. RESUMING FROM {path.name} INSTEAD")
            return
    raise CheckpointError(f"{last} is missing, and all checkpoints of its folder are damaged. {remedy}")


def replace_damaged(last: Path, fault: str) -> None:
    """Put the newest whole checkpoint of a training in place of its damaged last one, and say so."""
    # at every instant there is a last checkpoint: without one, the next start would train from the beginning
    for path in _others(last):
        if damage(path) is None:
            damaged = last.with_name(f"{last.name}.damaged")
            _copy_whole(last, damaged)
            _copy_whole(path, last)
            logger.warning(f"{last} IS DAMAGED and is now {damaged.name}. RESUMING FROM {path.name} INSTEAD. {fault}")
            return
    raise CheckpointError(
        f"{last} is damaged, and its folder has no other checkpoint that is whole. Copy one there under this name, or "
        f"remove it to start from the beginning. {fault}"
    )


def _others(last: Path) -> list[Path]:
    """The other checkpoints of a training, the newest first."""
    name = re.compile(TRAINING_NAMES + re.escape(last.name.removeprefix("checkpoint_last")))
    others = [path for path in last.parent.iterdir() if name.fullmatch(path.name)]
    return sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)


# dictionary and tokenizer beside checkpoints, so that these work wherever their folder is taken

DICTIONARIES = ("dict.txt", "dict.source.txt", "dict.target.txt")


def copy_dictionary_and_tokenizer(original: Callable, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
    """Save the dictionary and the tokenizer of a task's data folder beside its first checkpoint."""
    saved = original(cfg, trainer, epoch_itr, val_loss)
    folder = getattr(trainer.task, "data_folder", None)
    if saved is not None and folder is not None and trainer.data_parallel_rank == 0:
        try:
            copy_data_files(folder, Path(cfg.save_dir))
        except OSError as error:
            logger.warning(f"{cfg.save_dir}: dictionary and tokenizer could not be copied there ({error})")
    return saved


def copy_data_files(source: Path, target: Path) -> None:
    """Copy the dictionaries and the tokenizer of a folder into another one, each file whole, unless it has them."""
    if (target / "corpus.json").exists():
        return
    # not above: where a tokenizer's library is missing, patches that say so must be there first
    from fairseq_poolingformer.text.tokenizers import tokenizer_files

    for path in (*(source / name for name in DICTIONARIES), *tokenizer_files(source)):
        copied = target / path.relative_to(source)
        if path.is_file() and not (copied.is_file() and filecmp.cmp(path, copied, shallow=False)):
            if not path.resolve().is_relative_to(source.resolve()):
                logger.warning(f"{path} is a link to a file of another folder, and is not copied to {target}")
                continue
            copied.parent.mkdir(exist_ok=True)
            with atomic_write(copied) as unfinished:
                shutil.copyfile(path, unfinished)

"""Dictionary and tokenizer beside checkpoints, so that these work wherever their folder is taken."""

import filecmp
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.atomic_write import atomic_write
from fairseq_poolingformer.text.data_folder import tokenizer_path

logger = logging.getLogger(__name__)

DICTIONARIES = ("dict.txt", "dict.source.txt", "dict.target.txt")


def copy_dictionary_and_tokenizer(original: Callable, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
    """Save the dictionary and the tokenizer of a task's data folder beside its first checkpoint."""
    saved = original(cfg, trainer, epoch_itr, val_loss)
    folder = getattr(trainer.task, "data_folder", None)
    if saved is not None and folder is not None and trainer.data_parallel_rank == 0:
        try:
            copy(folder, Path(cfg.save_dir))
        except OSError as error:
            logger.warning(f"{cfg.save_dir}: dictionary and tokenizer could not be copied there ({error})")
    return saved


def copy(source: Path, target: Path) -> None:
    """Copy the dictionaries and the tokenizer of a folder into another one, each file whole, unless it has them."""
    if (target / "corpus.json").exists():
        return
    tokenizer = sorted(tokenizer_path(source).glob("*"), key=lambda path: path.name == "config.json")  # that one last
    for path in (*(source / name for name in DICTIONARIES), *tokenizer):
        copied = target / path.relative_to(source)
        if path.is_file() and not (copied.is_file() and filecmp.cmp(path, copied, shallow=False)):
            copied.parent.mkdir(exist_ok=True)
            with atomic_write(copied) as unfinished:
                shutil.copyfile(path, unfinished)

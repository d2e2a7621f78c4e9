"""Preprocessing split over machines: each encodes every N-th part, and one joins the parts to a data folder."""

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.whole_file import whole_file, write_lines

from .records import InputError

logger = logging.getLogger("preprocess")


def claim(parts_path: Path, number: int, count: int) -> None:
    """Note which shard works in a folder.

    Raises:
        InputError: another shard does, whose tokenizer may be half written.
    """
    note, mine = parts_path / "shard", f"{number} of {count}"
    if note.is_file() and (other := note.read_text(encoding="utf-8").strip()) != mine:
        raise InputError(
            f"{parts_path.parent} has the work of shard {other}: give each shard an --output-folder of its own"
        )
    write_lines(note, [mine])


def join(folders: Sequence[Path], names: tuple[str, str], parts_path: Path) -> None:
    """Take over the parts of shards, as if this run had encoded them.

    They are linked where the file system can do that, else copied. The shards' folders stay as they are.

    Args:
        folders: the shards' output folders.
        names: of the folder of parts in each, and of the file in it that identifies settings and input.
        parts_path: where to; its own such file is there already.

    Raises:
        InputError: a folder has no parts, or parts of other settings, another input or another tokenizer.
    """
    parts_name, mark = names
    wanted = (parts_path / mark).read_text(encoding="utf-8")
    for folder in folders:
        path = folder / parts_name
        if not (path / mark).is_file():
            raise InputError(f"--join {folder}: no shard has worked there; run the command with --shard-id first")
        if (path / mark).read_text(encoding="utf-8") != wanted:
            raise InputError(
                f"--join {folder}: its parts were made with other options or from other input files than this command's"
            )
        if not tokenizers.is_saved(path):
            raise InputError(f"--join {folder}: it has no tokenizer yet; let its shard finish")
        _join_tokenizer(folder, path, parts_path)
        joined = 0
        for done in sorted(path.glob("*.json")):
            arrays = sorted(path.glob(f"{done.stem}.*.array"))
            for file in (*arrays, done):  # a part is whole when it has its .json
                _link(file, parts_path / file.name)
            joined += 1
        logger.info("%s: %d parts", folder, joined)


def _join_tokenizer(folder: Path, path: Path, parts_path: Path) -> None:
    if not tokenizers.is_saved(parts_path):
        tokenizers.load_tokenizer(path).save(parts_path)
    if tokenizers.fingerprint(path) != tokenizers.fingerprint(parts_path):
        raise InputError(
            f"--join {folder}: its shard has trained another tokenizer than the first one, with another version of "
            "sentencepiece or on another processor. Train one, and give it to all with --sentencepiece-model"
        )


def _link(source: Path, target: Path) -> None:
    with whole_file(target) as unfinished:
        unfinished.unlink(missing_ok=True)  # of a killed run; it may be the source by another name
        try:
            os.link(source, unfinished)
        except OSError:  # another file system
            shutil.copyfile(source, unfinished)

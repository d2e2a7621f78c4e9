"""The files of a data folder: this module names each of them once, for those who write it and those who read it.

========================  ==========================================================================================
``corpus.json``           says what the folder was made of; preprocessing writes it last
``dict.txt``              fairseq's dictionary; folders of pairs have ``dict.source.txt`` and ``dict.target.txt``
``tokenizer/``            ``config.json`` and the tokenizer's own files
``SPLIT.ARRAY.bin, .idx``  a sequence of integers for each example, in fairseq's memory-mapped format
``SPLIT.TEXT.txt``        a text for each example: its id, its summary on one line, …
``SPLIT.rejects.jsonl``   the records of the input that could not be used, and why
``.parts/``               unfinished work
========================  ==========================================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, read_entries
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.sequences import Sequences

_BLOCK = 2**22  # ids compared at a time
SMALL_BYTES = 2**20  # files up to this size are read whole whenever they are opened, of others the size is compared


class FolderError(ValueError):
    """Files of a data folder that do not belong together."""


@dataclass(frozen=True)
class Layout:
    """The files that one kind of data folder has."""

    made_with: str  # the commands that make such a folder, for messages
    ids: tuple[str, ...]  # names of the arrays of dictionary ids; an empty name leaves ``SPLIT.bin`` and ``SPLIT.idx``
    numbers: tuple[str, ...] = ()  # names of the arrays of other integers, stored as int32
    texts: tuple[str, ...] = ("id",)  # names of the texts, ``id`` among them
    dictionaries: tuple[str, ...] = ("dict.txt",)  # names of the dictionary's files
    outputs: tuple[str, ...] = ()  # those of ``ids`` that are learned; the others are the document

    def dtypes(self, id_dtype: np.dtype) -> dict[str, np.dtype]:
        """The type of every array, given that of dictionary ids."""
        return dict.fromkeys(self.ids, id_dtype) | dict.fromkeys(self.numbers, np.dtype(np.int32))


BYTES = Layout(made_with="poolingformer preprocess char_lm", ids=("",), texts=())


@dataclass(frozen=True)
class DataFolder:
    """A folder that preprocessing writes; ``…_path`` name files, other methods open them, or raise for damage."""

    path: Path
    layout: Layout

    @property
    def corpus_path(self) -> Path:
        return self.path / "corpus.json"

    @property
    def tokenizer_path(self) -> Path:
        return tokenizer_path(self.path)

    @property
    def parts_path(self) -> Path:
        return self.path / ".parts"

    def dictionary_paths(self) -> list[Path]:
        return [self.path / name for name in self.layout.dictionaries]

    def array_path(self, split: str, array: str = "") -> Path:
        """The path of an array without ``.bin`` and ``.idx``."""
        return self.path / (f"{split}.{array}" if array else split)

    def text_path(self, split: str, text: str) -> Path:
        return self.path / f"{split}.{text}.txt"

    def rejects_path(self, split: str) -> Path:
        return self.path / f"{split}.rejects.jsonl"

    def corpus(self) -> dict:
        """The content of ``corpus.json``."""
        self._require(
            self.corpus_path,
            "preprocessing writes it last, so the folder is not finished. Run the same command again; it continues",
        )
        return _read_corpus(self.path)

    def dictionary(self) -> Path:
        """The dictionary's file; of several, the first."""
        path = self._require(self.dictionary_paths()[0], f"give a data folder made with {self.layout.made_with}")
        check_file(self.path, path)
        return path

    def array(self, split: str, array: str = "") -> Path:
        """The path of an array that is there, without ``.bin`` and ``.idx``."""
        prefix = self.array_path(split, array)
        for suffix in (".idx", ".bin"):
            check_file(self.path, self._require(Path(f"{prefix}{suffix}"), self._other_splits(split, array)))
        if array in self.layout.ids and _described(self.path, Path(f"{prefix}.bin")) is None:
            self._check_ids(prefix, array)
        return prefix

    def _check_ids(self, prefix: Path, array: str) -> None:
        """Check that the dictionary has each id of an array, which no digest vouches for."""
        side = array.rpartition(".")[2]
        paths = self.dictionary_paths()
        path = next((one for one in paths if len(paths) > 1 and side in one.name.split(".")), paths[0])
        if path.is_file():
            size = len(SPECIAL_SYMBOLS) + sum(1 for _ in read_entries(path))
            values = Sequences(prefix).values
            blocks = (values[first : first + _BLOCK] for first in range(0, len(values), _BLOCK))
            if (largest := max((int(block.max()) for block in blocks), default=0)) >= size:
                raise FolderError(
                    f"{prefix}.bin: has the token {largest}, and {path.name} has {size} symbols, so they do not belong "
                    "together; preprocess again"
                )

    def _require(self, path: Path, remedy: str) -> Path:
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path}: no such folder")
        return _require(path, remedy)

    def _other_splits(self, split: str, array: str) -> str:
        """Remedy for a missing file of a split."""
        splits = self.splits(array)
        if not splits:
            return f"give a data folder made with {self.layout.made_with}"
        there = "" if split in splits else f"no split {split!r} (there: {', '.join(splits)}). "
        return f"{there}Make it with {self.layout.made_with}"

    def sequences(self, split: str, array: str = "") -> Sequences:
        """The sequences of an array."""
        return Sequences(self.array(split, array))

    def text(self, split: str, text: str) -> Path:
        """The file of a text."""
        path = self._require(self.text_path(split, text), self._other_splits(split, self.layout.ids[0]))
        check_file(self.path, path)
        return path

    def files(self, splits: Iterable[str]) -> list[Path]:
        """All files of these splits, the dictionaries and the tokenizer's files."""
        arrays = (*self.layout.ids, *self.layout.numbers)
        paths = self.dictionary_paths() + sorted(self.tokenizer_path.glob("*"))
        for split in splits:
            prefixes = [self.array_path(split, array) for array in arrays]
            paths += [Path(f"{prefix}{suffix}") for prefix in prefixes for suffix in (".bin", ".idx")]
            paths += [self.text_path(split, text) for text in self.layout.texts]
        return paths

    def write_corpus(self, content: Mapping[str, object], splits: Iterable[str]) -> None:
        """Write ``corpus.json`` with a description of every file; this makes the folder a finished one."""
        described = {path.relative_to(self.path).as_posix(): describe(path) for path in self.files(splits)}
        whole = json.loads(json.dumps({**content, "files": described}))  # as it will be read
        whole["corpus_sha256"] = _digest(whole)
        write_lines(self.corpus_path, [json.dumps(whole, ensure_ascii=False, indent=1)])

    def splits(self, array: str) -> list[str]:
        """The names of the splits that have an array."""
        suffix = f".{array}.idx" if array else ".idx"
        return sorted(path.name.removesuffix(suffix) for path in self.path.glob(f"*{suffix}"))


def tokenizer_path(folder: Path) -> Path:
    """``tokenizer/`` of a data folder, or of a checkpoint's folder."""
    return Path(folder) / "tokenizer"


def is_of_fairseq_preprocess(folder: Path) -> bool:
    """Whether a folder has nothing that this package writes: its tokenizer is one that the commands must name."""
    ours = (folder / "corpus.json", tokenizer_path(folder), folder / ".parts")
    return not any(os.path.lexists(path) for path in ours) and not any(folder.glob("*.id.txt"))


def tokenizer_config(folder: Path) -> Path:
    """The file that says which tokenizer a folder holds."""
    path = _require(tokenizer_path(folder) / "config.json", f"is {folder} a folder that preprocessing wrote?")
    for file in path.parent.iterdir():
        check_file(folder, _require(file, "a tokenizer's folder holds files only"))
    return path


def check_file(folder: Path, path: Path) -> None:
    """Compare a file of a data folder with its description in ``corpus.json``, if there is one."""
    if (expected := _described(folder, path)) is not None:
        compare(_require(path, "restore it from a copy, or preprocess again"), expected)


def _described(folder: Path, path: Path) -> Any:
    """Entry of a file in ``corpus.json``; None where there is none."""
    if not (corpus := Path(folder) / "corpus.json").exists():
        return None
    _require(corpus, "a pipe or a folder vouches for nothing; preprocess again")
    return _read_corpus(folder).get("files", {}).get(path.relative_to(folder).as_posix())


def check_folder(folder: Path) -> tuple[int, list[str]]:
    """Read every file of a finished data folder whole."""
    _require(Path(folder) / "corpus.json", f"is {folder} a finished data folder?")
    described = _read_corpus(folder).get("files")
    if not described:
        raise ValueError(f"{folder}: an older version made it, without digests; preprocess again to have them")
    problems = []
    for name, expected in described.items():
        try:
            compare(_require(Path(folder) / name, "preprocess again"), expected, whole=True)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    return len(described), problems


def _read_corpus(folder: Path) -> dict:
    path = Path(folder) / "corpus.json"
    try:
        corpus = read_json_file(path)
        if "corpus_sha256" in corpus and _digest(corpus) != corpus["corpus_sha256"]:
            raise ValueError("its bytes have changed")
    except (ValueError, RecursionError) as error:
        reason = str(error).removeprefix(str(path)).lstrip(":, ")
        raise ValueError(f"{path}: damaged ({reason}); preprocess again with --overwrite") from None
    return corpus


def _digest(corpus: Mapping[str, object]) -> str:
    """Digest the content of ``corpus.json`` without the digest itself."""
    content = {key: value for key, value in corpus.items() if key != "corpus_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _require(path: Path, remedy: str) -> Path:
    if not path.is_file():  # true of a link to a file, too: large files often lie on another disk
        what = "not a file" if path.exists() else "not found"
        raise FileNotFoundError(f"{path}: {what}; {remedy}")
    return path


def describe(path: Path) -> dict[str, object]:
    """A file's size and the digest of its content."""
    return {"bytes": path.stat().st_size, "sha256": digest_of(path)}


def compare(path: Path, expected: Mapping[str, object], whole: bool = False) -> None:
    """Compare a file with its description: its size, and of a small file, or where ``whole``, its content."""
    size, change = path.stat().st_size, None
    if size != expected["bytes"]:
        change = f"{size:,} bytes instead of {expected['bytes']:,}"
    elif (whole or size <= SMALL_BYTES) and digest_of(path) != expected.get("sha256"):
        change = "its bytes have changed"
    if change:
        raise ValueError(
            f"{path}: not the file that preprocessing wrote: {change}. Restore it from a copy, or preprocess again"
        )


def digest_of(path: Path) -> str:
    """Digest the content of a file (SHA-256, hexadecimal)."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(SMALL_BYTES):
            digest.update(block)
    return digest.hexdigest()

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

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.sequences import Sequences


@dataclass(frozen=True)
class Layout:
    """The files that one kind of data folder has.

    Attributes:
        made_with: the commands that make such a folder, for messages.
        ids: names of the arrays of dictionary ids; an empty name leaves ``SPLIT.bin`` and ``SPLIT.idx``.
        numbers: names of the arrays of other integers, stored as int32.
        texts: names of the texts, ``id`` among them.
        dictionaries: names of the dictionary's files.
    """

    made_with: str
    ids: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("id",)
    dictionaries: tuple[str, ...] = ("dict.txt",)

    def dtypes(self, id_dtype: np.dtype) -> dict[str, np.dtype]:
        """The type of every array, given that of dictionary ids."""
        return dict.fromkeys(self.ids, id_dtype) | dict.fromkeys(self.numbers, np.dtype(np.int32))


def pair_array(side: str, source: str = "source", target: str = "target") -> str:
    """fairseq's name of one side of a corpus of pairs, such as ``source-target.source``."""
    return f"{source}-{target}.{side}"


PAIRS = Layout(
    made_with="poolingformer-preprocess arxiv_pubmed or stdlib",
    ids=(pair_array("source"), pair_array("target")),
    texts=("id", "summary"),
    dictionaries=("dict.source.txt", "dict.target.txt"),
)
DOCUMENTS = Layout(made_with="poolingformer-preprocess wikipedia or plain_text", ids=("",))
DOCUMENTS_WITH_TEXT = replace(DOCUMENTS, texts=("id", "text"))
QUESTIONS = Layout(
    made_with="poolingformer-preprocess natural_questions or tydiqa",
    ids=("question", "document"),
    numbers=("start", "end", "paragraph", "annotation"),
    texts=("id", "notes"),
)
BYTES = Layout(made_with="poolingformer-preprocess char_lm", ids=("",), texts=())


@dataclass(frozen=True)
class DataFolder:
    """A folder that preprocessing writes, and that tasks and commands read.

    ``…_path`` only name files; the other methods raise FileNotFoundError where a file is missing, and say which.
    """

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
        """The content of ``corpus.json``.

        Raises:
            FileNotFoundError: preprocessing has not finished here.
            ValueError: the file is damaged.
        """
        path = _require(
            self.corpus_path,
            "preprocessing writes it last, so the folder is not finished. Run the same command again; it continues",
        )
        try:
            corpus = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: damaged ({error}); preprocess again") from error
        if not isinstance(corpus, dict):
            raise ValueError(f"{path}: damaged (not an object); preprocess again")
        return corpus

    def dictionary(self) -> Path:
        """The dictionary's file; of several, the first."""
        return _require(self.dictionary_paths()[0], f"give a data folder made with {self.layout.made_with}")

    def array(self, split: str, array: str = "") -> Path:
        """The path of an array that is there, without ``.bin`` and ``.idx``."""
        prefix = self.array_path(split, array)
        remedy = f"no split {split!r} (there: {', '.join(self.splits(array))}). Make it with {self.layout.made_with}"
        for suffix in (".idx", ".bin"):
            _require(Path(f"{prefix}{suffix}"), remedy)
        return prefix

    def sequences(self, split: str, array: str = "") -> Sequences:
        """The sequences of an array.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: a file is damaged.
        """
        return Sequences(self.array(split, array))

    def text(self, split: str, text: str) -> Path:
        """The file of a text."""
        return _require(self.text_path(split, text), f"make the data folder with {self.layout.made_with}")

    def splits(self, array: str) -> list[str]:
        """The names of the splits that have an array."""
        suffix = f".{array}.idx" if array else ".idx"
        return sorted(path.name.removesuffix(suffix) for path in self.path.glob(f"*{suffix}"))


def tokenizer_path(folder: Path) -> Path:
    """``tokenizer/`` of a data folder, or of a checkpoint's folder."""
    return Path(folder) / "tokenizer"


def tokenizer_config(folder: Path) -> Path:
    """The file that says which tokenizer a folder holds.

    Raises:
        FileNotFoundError: the folder holds no tokenizer.
    """
    return _require(tokenizer_path(folder) / "config.json", f"is {folder} a folder that preprocessing wrote?")


def folder_of_checkpoint(checkpoint: Path, data: str | None, layout: Layout | None = None) -> Path:
    """The folder with a checkpoint's tokenizer: the checkpoint's own, or the data that it was trained on.

    Args:
        checkpoint: the checkpoint's file.
        data: data folders that the checkpoint names, separated by colons; None where it names none.
        layout: the folder must also have the dictionaries of this layout.

    Raises:
        FileNotFoundError: neither folder has a tokenizer.
    """
    names = ["tokenizer/config.json", *(layout.dictionaries if layout else ())]
    folders = [Path(checkpoint).parent, *map(Path, data.split(":") if data else ())]
    for folder in folders:
        if all((folder / name).is_file() for name in names):
            return folder
    raise FileNotFoundError(
        f"{checkpoint}: no tokenizer found; {' and '.join(names)} must be in one of these folders: "
        f"{', '.join(map(str, folders))}"
    )


def _require(path: Path, remedy: str) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not found; {remedy}")
    return path

"""A data folder of questions and whole documents, memory-mapped.

Each split holds one sequence of integers an example in fairseq's memory-mapped format: ``question`` and ``document``
(dictionary ids), ``start`` and ``end`` (offsets of each document token in the corpus's unit), ``paragraph`` (rows of
:data:`PARAGRAPH_COLUMNS`) and ``annotation`` (rows of :data:`ANNOTATION_COLUMNS`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

_MAGIC = b"MMIDIDX\x00\x00"
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16, 9: np.uint32}
PARAGRAPH_COLUMNS = ("first_token", "end_token", "candidate_index", "start_offset", "end_offset")
ANNOTATION_COLUMNS = ("answer_type", "paragraph", "first_token", "end_token")


class Sequences:
    """Sequences of integers of any lengths, one after the other in a file.

    Args:
        prefix: path of the ``.bin`` and ``.idx`` files without their suffix.

    Attributes:
        values: (N,) all integers, memory-mapped.
        bounds: (n + 1,) int64; sequence k is ``values[bounds[k]:bounds[k + 1]]``.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is damaged.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        dtype, sizes = _read_index(Path(f"{prefix}.idx"))
        self.bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        path, expected = Path(f"{prefix}.bin"), int(self.bounds[-1]) * dtype.itemsize
        if path.stat().st_size != expected:
            raise ValueError(
                f"{path}: has {path.stat().st_size:,} bytes where its index says {expected:,}; preprocess again"
            )
        self.values = np.memmap(path, dtype, mode="r") if expected else np.empty(0, dtype)

    @property
    def sizes(self) -> np.ndarray:
        """(n,) lengths of the sequences."""
        return np.diff(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.bounds[index] : self.bounds[index + 1]]

    def __reduce__(self):
        return Sequences, (self.prefix,)  # a pickled memory map would carry the whole file


def _read_index(path: Path) -> tuple[np.dtype, np.ndarray]:
    head_size = len(_MAGIC) + struct.calcsize("<QBQ")
    with open(path, "rb") as file:
        head = file.read(head_size)
        if len(head) < head_size or not head.startswith(_MAGIC):
            raise ValueError(f"{path}: not an index of fairseq's memory-mapped format; preprocess again")
        _, code, count = struct.unpack("<QBQ", head[len(_MAGIC) :])
        sizes = np.frombuffer(file.read(4 * count), np.int32)
    if code not in _DTYPES or len(sizes) != count:
        raise ValueError(f"{path}: damaged; preprocess again")
    return np.dtype(_DTYPES[code]), sizes


@dataclass(frozen=True)
class QuestionAnsweringSplit:
    """One split; every field has one sequence an example."""

    question: Sequences
    document: Sequences
    start: Sequences
    end: Sequences
    paragraph: Sequences
    annotation: Sequences

    @classmethod
    def open(cls, folder: Path, split: str) -> QuestionAnsweringSplit:
        """Map a split of a data folder.

        Args:
            folder: the data folder.
            split: e.g. "train".

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: a file is damaged, or two of them do not belong together.
        """
        index = Path(folder) / f"{split}.question.idx"
        if not index.is_file():
            raise FileNotFoundError(
                f"{index}: not found; the data folder has no split {split!r}. "
                "Make it with python -m preprocess.natural_questions or preprocess.tydiqa"
            )
        found = cls(**{field.name: Sequences(Path(folder) / f"{split}.{field.name}") for field in fields(cls)})
        found._check()
        return found

    def __len__(self) -> int:
        return len(self.question)

    def paragraphs(self, example: int) -> np.ndarray:
        """(P, 5) rows of an example's paragraphs."""
        return self.paragraph[example].reshape(-1, len(PARAGRAPH_COLUMNS))

    def _check(self) -> None:
        for field in fields(self):
            sequences = getattr(self, field.name)
            if len(sequences) != len(self):
                raise ValueError(
                    f"{sequences.prefix}: {len(sequences)} examples where {self.question.prefix} has {len(self)}; "
                    "preprocess again"
                )
        for sequences, columns in ((self.paragraph, PARAGRAPH_COLUMNS), (self.annotation, ANNOTATION_COLUMNS)):
            _refuse(sequences, sequences.sizes % len(columns) != 0, f"not rows of {len(columns)}")
        for sequences in (self.start, self.end):
            _refuse(sequences, sequences.sizes != self.document.sizes, "not one offset for each document token")


def _refuse(sequences: Sequences, is_wrong: np.ndarray, what: str) -> None:
    if is_wrong.any():
        raise ValueError(f"{sequences.prefix}, example {int(is_wrong.argmax())}: {what}; preprocess again")

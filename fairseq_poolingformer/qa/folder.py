"""Reads a data folder of questions and whole documents, memory-mapped.

Each split has six arrays with one sequence of integers for each example: ``question`` and ``document`` (dictionary
ids), ``start`` and ``end`` (offsets of each document token in the corpus's unit), ``paragraph`` (rows of
:data:`PARAGRAPH_COLUMNS`) and ``annotation`` (rows of :data:`ANNOTATION_COLUMNS`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.data_folder import QUESTIONS, DataFolder
from fairseq_poolingformer.text.sequences import Sequences

PARAGRAPH_COLUMNS = ("first_token", "end_token", "candidate_index", "start_offset", "end_offset")
ANNOTATION_COLUMNS = ("answer_type", "paragraph", "first_token", "end_token")


@dataclass(frozen=True)
class QuestionAnsweringSplit:
    """One split; every field has one sequence for each example."""

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
        data = DataFolder(Path(folder), QUESTIONS)
        found = cls(**{field.name: data.sequences(split, field.name) for field in fields(cls)})
        found._check()
        return found

    def __len__(self) -> int:
        return len(self.question)

    def paragraphs(self, example: int) -> np.ndarray:
        """Return the (P, 5) rows of an example's paragraphs."""
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

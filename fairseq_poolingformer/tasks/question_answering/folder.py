"""Reads a data folder of questions and whole documents, memory-mapped.

Each split has six arrays with one sequence of integers for each example: ``question`` and ``document`` (dictionary
ids), ``start`` and ``end`` (offsets of each document token in the corpus's unit), ``paragraph`` (rows of
:data:`PARAGRAPH_COLUMNS`) and ``annotation`` (rows of :data:`ANNOTATION_COLUMNS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.text.data_folder import QUESTIONS, Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

PARAGRAPH_COLUMNS = ("first_token", "end_token", "candidate_index", "start_offset", "end_offset")
ANNOTATION_COLUMNS = ("answer_type", "paragraph", "first_token", "end_token")


@dataclass(frozen=True)
class QuestionAnsweringSplit(Split):
    """One split; every field has one sequence for each example."""

    layout: ClassVar[Layout] = QUESTIONS

    question: Sequences
    document: Sequences
    start: Sequences
    end: Sequences
    paragraph: Sequences
    annotation: Sequences

    def paragraphs(self, example: int) -> np.ndarray:
        """Return the (P, 5) rows of an example's paragraphs."""
        return self.paragraph[example].reshape(-1, len(PARAGRAPH_COLUMNS))

    def check(self) -> None:
        for sequences, columns in ((self.paragraph, PARAGRAPH_COLUMNS), (self.annotation, ANNOTATION_COLUMNS)):
            refuse(sequences, sequences.sizes % len(columns) != 0, f"not rows of {len(columns)}")
        for sequences in (self.start, self.end):
            refuse(sequences, sequences.sizes != self.document.sizes, "not one offset for each document token")

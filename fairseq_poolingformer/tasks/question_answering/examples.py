"""The arrays of a split, memory-mapped, and its documents cut into overlapping segments.

A segment is ``<s> question </s> </s> document tokens </s>``. The functions that cut work on a whole split at once and
need only lengths, never a document. Positions in a document count its tokens from 0; spans are half-open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NUM_SPECIAL_SYMBOLS = 4  # <s>, </s> </s> between question and document, </s>


@dataclass(frozen=True)
class SegmentLimits:
    """The sizes that decide how documents are cut, in tokens."""

    max_positions: int = 4096
    doc_stride: int = 1568
    max_question_length: int = 64

    def __post_init__(self) -> None:
        for name in ("max_positions", "doc_stride", "max_question_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        room = self.max_positions - self.max_question_length - NUM_SPECIAL_SYMBOLS
        if self.doc_stride > room:
            raise ValueError(
                f"doc_stride {self.doc_stride} would skip document tokens: with max_positions {self.max_positions} and "
                f"a question of max_question_length {self.max_question_length}, a segment holds {room} of them. "
                "Take a smaller doc_stride or max_question_length"
            )


@dataclass(frozen=True)
class Segments:
    """The segments of a split, in the order of its examples."""

    example: np.ndarray
    number: np.ndarray
    first_token: np.ndarray
    end_token: np.ndarray
    size: np.ndarray
    question_length: np.ndarray
    bounds: np.ndarray
    doc_stride: int

    def __len__(self) -> int:
        return len(self.example)


def cut_into_segments(question_sizes: np.ndarray, document_sizes: np.ndarray, limits: SegmentLimits) -> Segments:
    """Cut documents; the last segment of each is the first one that reaches its end."""
    question_length = np.minimum(question_sizes, limits.max_question_length).astype(np.int64)
    room = limits.max_positions - question_length - NUM_SPECIAL_SYMBOLS
    beyond_first = np.maximum(np.asarray(document_sizes, np.int64) - room, 0)
    counts = 1 - (-beyond_first // limits.doc_stride)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    example = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    number = np.arange(bounds[-1]) - bounds[example]
    first = number * limits.doc_stride
    end = np.minimum(first + room[example], np.asarray(document_sizes, np.int64)[example])
    size = end - first + question_length[example] + NUM_SPECIAL_SYMBOLS
    small = [x.astype(np.int32) for x in (number, first, end, size)]
    return Segments(example, *small, question_length.astype(np.int32), bounds, limits.doc_stride)


def visible_paragraphs(paragraphs: np.ndarray, first_token: int, end_token: int) -> tuple[int, int]:
    """Find the paragraphs that have a token in a segment."""
    first = int(np.searchsorted(paragraphs[:, 1], first_token, side="right"))
    return first, max(first, int(np.searchsorted(paragraphs[:, 0], end_token, side="left")))


def paragraph_ids(paragraphs: np.ndarray, first_token: int, end_token: int) -> np.ndarray:
    """Number the tokens of a segment by their paragraphs."""
    positions = np.arange(first_token, end_token)
    before = np.searchsorted(paragraphs[:, 0], positions, side="right")
    ends = np.concatenate([np.zeros(1, np.int64), paragraphs[:, 1]])
    return np.where(positions < ends[before], before, 0)


def keep_negatives(segments: Segments, chosen: np.ndarray, share: float, seed: int, epoch: int) -> np.ndarray:
    """Draw the negative segments of an epoch.

    A hash of seed, epoch, example and segment decides, so that every process, and a resumed training, draws the same.
    """
    state = np.full(len(chosen), seed, np.uint64)
    for part in (np.full(len(chosen), epoch), segments.example[chosen], segments.number[chosen]):
        state = _mix(state ^ _mix(part.astype(np.uint64)))
    return (state >> np.uint64(11)) * 2.0**-53 < share


def _mix(x: np.ndarray) -> np.ndarray:
    """One step of the generator SplitMix64 (Steele et al. 2014), with each element (uint64) as its state."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


PARAGRAPH_COLUMNS = ("first_token", "end_token", "candidate_index", "start_offset", "end_offset")
ANNOTATION_COLUMNS = ("answer_type", "paragraph", "first_token", "end_token")


@dataclass(frozen=True)
class QuestionAnsweringSplit(Split):
    """One split; every field has one sequence for each example.

    Attributes:
        question, document: dictionary ids.
        start, end: offsets of each document token in the corpus's unit.
        paragraph, annotation: rows of :data:`PARAGRAPH_COLUMNS` and of :data:`ANNOTATION_COLUMNS`.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess natural_questions or tydiqa",
        ids=("question", "document"),
        numbers=("start", "end", "paragraph", "annotation"),
        texts=("id", "notes"),
    )

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

"""The arrays of a split, memory-mapped, its documents cut into overlapping segments, and the answer that each holds.

A segment is ``<s> question </s> </s> document tokens </s>``. The functions that cut work on a whole split at once and
need only lengths, never a document. Positions in a document count its tokens from 0; spans are half-open.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
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
    """Draw the negative segments of an epoch, by a hash of seed, epoch, example and segment, alike in every process."""
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
    """One split; every field has one sequence for each example."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess natural_questions or tydiqa",
        ids=("question", "document"),
        numbers=("start", "end", "paragraph", "annotation"),
        texts=("id", "notes"),
    )

    question: Sequences  # dictionary ids, as of the document
    document: Sequences
    start: Sequences  # offsets of each document token in the corpus's unit, as ``end``
    end: Sequences
    paragraph: Sequences  # rows of :data:`PARAGRAPH_COLUMNS`
    annotation: Sequences  # rows of :data:`ANNOTATION_COLUMNS`

    def paragraphs(self, example: int) -> np.ndarray:
        """Return the (P, 5) rows of an example's paragraphs."""
        return self.paragraph[example].reshape(-1, len(PARAGRAPH_COLUMNS))

    def check(self) -> None:
        for sequences, columns in ((self.paragraph, PARAGRAPH_COLUMNS), (self.annotation, ANNOTATION_COLUMNS)):
            refuse(sequences, sequences.sizes % len(columns) != 0, f"not rows of {len(columns)}")
        for sequences in (self.start, self.end):
            refuse(sequences, sequences.sizes != self.document.sizes, "not one offset for each document token")


class AnswerType(IntEnum):
    """The kinds of answers, numbered as in the data folder and in the output layer; LONG is a long answer only."""

    NULL = 0
    SHORT = 1
    YES = 2
    NO = 3
    LONG = 4


class Label(IntEnum):
    """How much of the answer a segment sees: nothing, a part, or all that it needs to give the answer."""

    NEGATIVE = 0
    PARTIAL = 1
    POSITIVE = 2


PARTIAL_SEGMENTS = {"skip": Label.PARTIAL, "negative": Label.NEGATIVE}  # --partial-segments


@dataclass(frozen=True)
class Answers:
    """One answer an example; -1 for each part that it lacks."""

    answer_type: np.ndarray
    paragraph: np.ndarray
    first_token: np.ndarray
    end_token: np.ndarray
    paragraph_first_token: np.ndarray
    paragraph_end_token: np.ndarray


def choose_annotation(annotations: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Choose the answer to learn from where there are several annotations."""
    # official: an answer of each kind when two annotators gave one, or a lone annotator; then the most frequent
    # paragraph, and the most frequent short answer in it, the first of equals
    counts = np.diff(bounds)
    example = np.repeat(np.arange(len(counts)), counts)

    def given(is_given: np.ndarray) -> np.ndarray:
        """(A,) True at the rows of a kind of answer that enough annotators gave."""
        votes = np.bincount(example[is_given], minlength=len(counts))
        return is_given & (votes >= np.minimum(counts, 2))[example]

    chosen = np.full((len(counts), len(ANNOTATION_COLUMNS)), -1, np.int32)
    chosen[:, 0] = AnswerType.NULL
    answered = np.flatnonzero(given(annotations[:, 0] != AnswerType.NULL))
    best = answered[_most_frequent(example[answered], annotations[answered, 1:2])]
    chosen[example[best], 0] = AnswerType.LONG
    chosen[example[best], 1] = annotations[best, 1]

    is_short = ~np.isin(annotations[:, 0], (AnswerType.NULL, AnswerType.LONG))
    short = np.flatnonzero(given(is_short) & (annotations[:, 1] == chosen[example, 1]))
    best = short[_most_frequent(example[short], annotations[short])]
    chosen[example[best]] = annotations[best]
    return chosen


def _most_frequent(example: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Find the first of each example's most frequent rows, as an index into ``rows``."""
    _, first, frequency = np.unique(np.column_stack([example, rows]), axis=0, return_index=True, return_counts=True)
    first = first[np.lexsort((-first, frequency, example[first]))]
    is_last = np.append(example[first][1:] != example[first][:-1], True)[: len(first)]
    return first[is_last]


def read_answers(split: QuestionAnsweringSplit) -> Answers:
    """Read the answer of each example, with the place of its paragraph."""
    rows = np.asarray(split.annotation.values).reshape(-1, len(ANNOTATION_COLUMNS))
    answer_type, paragraph, first, end = choose_annotation(rows, split.annotation.bounds // rows.shape[1]).T
    width = len(PARAGRAPH_COLUMNS)
    wrong = (answer_type < 0) | (answer_type > max(AnswerType))
    wrong |= (paragraph < -1) | (paragraph >= split.paragraph.sizes // width)
    wrong |= np.where(first < 0, (first != -1) | (end != -1), (end <= first) | (end > split.document.sizes))
    if wrong.any():
        example = int(wrong.argmax())
        row = dict(
            zip(ANNOTATION_COLUMNS, (int(x[example]) for x in (answer_type, paragraph, first, end)), strict=True)
        )
        raise ValueError(
            f"{split.annotation.prefix}, example {example}: {row} does not fit a document of "
            f"{split.document.sizes[example]} tokens and {split.paragraph.sizes[example] // width} paragraphs; "
            "preprocess again"
        )
    places = np.full((2, len(split)), -1, np.int32)
    has_paragraph = paragraph >= 0
    at = split.paragraph.bounds[:-1][has_paragraph] + paragraph[has_paragraph].astype(np.int64) * width
    places[:, has_paragraph] = split.paragraph.values[at], split.paragraph.values[at + 1]
    return Answers(answer_type, paragraph, first, end, *places)


def label_segments(segments: Segments, answers: Answers, partial: Label = Label.PARTIAL) -> np.ndarray:
    """Find out which segments hold the answer, a part of it, or nothing of it."""
    # Positive: the whole short answer or, for yes, no and a long answer alone, the whole paragraph; a paragraph that
    # fits nowhere is of the last segment in which it begins and which it fills. Partial: all others that see some,
    # and all segments where the answer has no known place
    is_short = answers.answer_type == AnswerType.SHORT
    needed_first = np.where(is_short, answers.first_token, answers.paragraph_first_token)
    needed_end = np.where(is_short, answers.end_token, answers.paragraph_end_token)
    is_answer = answers.answer_type != AnswerType.NULL
    is_placed = is_answer & (needed_first >= 0)
    has_paragraph = answers.paragraph >= 0
    seen_first = np.where(has_paragraph, np.minimum(needed_first, answers.paragraph_first_token), needed_first)
    seen_end = np.maximum(needed_end, answers.paragraph_end_token)

    example, first, end = segments.example, segments.first_token, segments.end_token
    positive = is_placed[example] & (needed_first[example] >= first) & (needed_end[example] <= end)
    answered = np.zeros(len(is_answer), bool)
    answered[example[positive]] = True
    too_long = np.flatnonzero(is_placed & ~is_short & ~answered)
    positive[segments.bounds[too_long] + needed_first[too_long] // segments.doc_stride] = True

    sees = is_placed[example] & (seen_first[example] < end) & (seen_end[example] > first)
    labels = np.where(sees, partial, Label.NEGATIVE)
    labels[(is_answer & ~is_placed)[example]] = Label.PARTIAL
    labels[positive] = Label.POSITIVE
    return labels.astype(np.int8)


def example_id_text(example_id: int | str) -> str:
    """Write an id for the first column of ``{split}.id.txt``: as JSON, so that 12 and "12" stay different."""
    return json.dumps(example_id)


def count_longer(answers: Answers, max_answer_length: int) -> int:
    """Count the short answers of more tokens than a prediction may have."""
    is_short = answers.answer_type == AnswerType.SHORT
    return int(np.count_nonzero(is_short & (answers.end_token - answers.first_token > max_answer_length)))


@dataclass(frozen=True)
class LabelCounts:
    """Numbers of segments with each label, of answers, and of those that no segment holds, so that none trains them."""

    positive: int
    partial: int
    negative: int
    answers: int
    without_segment: int

    @classmethod
    def of(cls, segments: Segments, answers: Answers, labels: np.ndarray) -> LabelCounts:
        negative, partial, positive = np.bincount(labels, minlength=len(Label)).tolist()
        num_answers = int(np.count_nonzero(answers.answer_type))
        num_answered = len(np.unique(segments.example[labels == Label.POSITIVE]))
        return cls(positive, partial, negative, num_answers, num_answers - num_answered)

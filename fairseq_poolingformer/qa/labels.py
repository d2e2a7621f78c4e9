"""What a segment is to be trained on: the answer chosen among annotations, and which segments hold it.

Answer types: 0 null, 1 short, 2 yes, 3 no, 4 long only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fairseq_poolingformer.qa.folder import ANNOTATION_COLUMNS, PARAGRAPH_COLUMNS, QuestionAnsweringSplit
from fairseq_poolingformer.qa.segments import Segments


class AnswerType(IntEnum):
    """The kinds of answers, numbered as in the data folder."""

    NULL = 0
    SHORT = 1
    YES = 2
    NO = 3
    LONG = 4


class Label(IntEnum):
    """What a segment sees of the answer: nothing, a part that teaches nothing sure, or all that is needed."""

    NEGATIVE = 0
    PARTIAL = 1
    POSITIVE = 2


@dataclass(frozen=True)
class Answers:
    """One answer an example; -1 where it lacks a part.

    Args:
        answer_type: (n,) see :class:`AnswerType`.
        paragraph: (n,) row of the paragraph.
        first_token, end_token: (n,) of the short answer, in document tokens.
        paragraph_first_token, paragraph_end_token: (n,) of the paragraph.
    """

    answer_type: np.ndarray
    paragraph: np.ndarray
    first_token: np.ndarray
    end_token: np.ndarray
    paragraph_first_token: np.ndarray
    paragraph_end_token: np.ndarray


def choose_annotation(annotations: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The answer to learn from where there are several annotations.

    Natural Questions and TyDi QA hold that there is a long answer when at least two annotators gave one, and a short
    one (or yes, or no) when at least two gave one; with a single annotator, one. The paragraph is the one that most
    annotators chose, the short answer the most frequent one in it; of equally frequent ones the first.

    Args:
        annotations: (A, 4) rows, see :data:`ANNOTATION_COLUMNS`.
        bounds: (n + 1,) example k has the rows ``bounds[k]`` to ``bounds[k + 1]``.

    Returns:
        (n, 4) rows, (0, -1, -1, -1) where there is no answer.
    """
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
    """For each example, the first of its most frequent rows, as an index into ``rows``."""
    _, first, frequency = np.unique(np.column_stack([example, rows]), axis=0, return_index=True, return_counts=True)
    first = first[np.lexsort((-first, frequency, example[first]))]
    is_last = np.append(example[first][1:] != example[first][:-1], True)[: len(first)]
    return first[is_last]


def read_answers(split: QuestionAnsweringSplit) -> Answers:
    """The answer of each example, with the place of its paragraph.

    Raises:
        ValueError: an annotation names a paragraph or tokens that the example does not have.
    """
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


def label_segments(segments: Segments, answers: Answers) -> np.ndarray:
    """Which segments are to answer, which are to find nothing, and which are left out of training.

    A short answer must lie wholly in a segment; yes, no and a long answer need their whole paragraph. A paragraph that
    lies wholly in no segment is answered by the last segment in which it begins, whose rest it fills. Another segment
    that sees a part of the paragraph or of the short answer is partial.

    Args:
        segments: of the split.
        answers: of its examples.

    Returns:
        (S,) int8, see :class:`Label`.
    """
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
    partial = sees | (is_answer & ~is_placed)[example]
    return np.where(positive, Label.POSITIVE, np.where(partial, Label.PARTIAL, Label.NEGATIVE)).astype(np.int8)


@dataclass(frozen=True)
class LabelCounts:
    """How a split was cut and labelled.

    Args:
        positive, partial, negative: segments.
        answers: examples with an answer.
        without_segment: of them, those whose answer no segment can be trained on.
    """

    positive: int
    partial: int
    negative: int
    answers: int
    without_segment: int

    @classmethod
    def of(cls, segments: Segments, answers: Answers, labels: np.ndarray) -> LabelCounts:
        """Count labels."""
        negative, partial, positive = np.bincount(labels, minlength=len(Label)).tolist()
        num_answers = int(np.count_nonzero(answers.answer_type))
        num_answered = len(np.unique(segments.example[labels == Label.POSITIVE]))
        return cls(positive, partial, negative, num_answers, num_answers - num_answered)

"""TriviaQA (Joshi et al. 2017): which piece of a document answers a question.

A segment is ``<s> question </s> document </s>``, with ``<s>`` and the question global (Longformer, §6.1 and appendix
D). An example is a question with one of its documents; its end is cut off. Any occurrence of any alias of the answer is
right.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import (
    MAX_QUESTION_LENGTH,
    Examples,
    Segment,
    Symbols,
    count_pieces,
    cut,
    cut_questions,
    mark_spans,
)
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

logger = logging.getLogger(__name__)

NUM_SPECIAL_SYMBOLS = 3  # <s>, </s> between question and document, </s>


@dataclass(frozen=True)
class TriviaqaSplit(Split):
    """One split; ``answer`` has the first document token and the one after the last of every occurrence, ascending."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess triviaqa or squad",
        ids=("question", "document"),
        numbers=("answer",),
        texts=("id", "notes"),
    )

    question: Sequences
    document: Sequences
    answer: Sequences

    def answers(self, example: int) -> np.ndarray:
        """(A, 2) spans of document tokens."""
        return self.answer[example].reshape(-1, 2)

    def all_answers(self) -> tuple[np.ndarray, np.ndarray]:
        """(A, 2) spans of all examples, and the example of each."""
        return np.asarray(self.answer.values).reshape(-1, 2), np.repeat(np.arange(len(self)), self.answer.sizes // 2)

    def check(self) -> None:
        refuse(self.answer, self.answer.sizes % 2 != 0, "answers are not pairs of tokens")
        spans, example = self.all_answers()
        first, end = spans.T
        is_outside = (first < 0) | (first >= end) | (end > self.document.sizes[example])
        outside = np.bincount(example[is_outside], minlength=len(self)) > 0
        refuse(self.answer, outside, "an answer is empty or lies outside the document")


class TriviaqaExamples(Examples):
    """The examples of a split."""

    def __init__(
        self,
        split: TriviaqaSplit,
        symbols: Symbols,
        max_positions: int,
        max_length: int = 4096,
        max_question_length: int = MAX_QUESTION_LENGTH,
        max_segments: int = 0,
        use_global: bool = True,
    ) -> None:
        least = max_question_length + NUM_SPECIAL_SYMBOLS + 1
        if max_question_length < 1 or max_positions < least or 0 < max_length < least or max_length < 0:
            raise ValueError(
                f"--max-question-length {max_question_length} with {NUM_SPECIAL_SYMBOLS} special symbols leaves no "
                f"room for a document in --max-positions {max_positions} or --max-document-positions {max_length}; "
                f"give {least} or more, or a shorter question"
            )
        self.split, self.symbols, self.use_global, self.max_segments = split, symbols, use_global, max_segments
        question = cut_questions(split.question, max_question_length)
        self.question_length = question
        self.room = max_positions - question - NUM_SPECIAL_SYMBOLS
        whole = split.document.sizes.astype(np.int64)
        kept = np.minimum(whole, max_length - question - NUM_SPECIAL_SYMBOLS) if max_length else whole
        pieces = count_pieces(kept, self.room, max_segments)
        self.document_length = np.minimum(kept, pieces * self.room)
        self.sizes = self.document_length + pieces * (question + NUM_SPECIAL_SYMBOLS)
        self._trainable = self._has_answer()
        answered = split.answer.sizes > 0
        self.num_cut_off = int(np.count_nonzero(answered & ~self._trainable))
        if answered.any():
            logger.info(
                "%s: of %d examples, %d have no answer in the document and %d none in the part that is read; they are "
                "not trained on",
                *(split.document.prefix, len(split), np.count_nonzero(~answered), self.num_cut_off),
            )

    @property
    def trainable(self) -> np.ndarray:
        """(n,) bool, True where an answer lies in one of the segments."""
        return self._trainable

    def segments(self, example: int) -> list[Segment]:
        question = self.split.question[example][: self.question_length[example]]
        document, answers = self.split.document[example], self.split.answers(example)
        head = np.concatenate([[self.symbols.bos], question, [self.symbols.eos]]).astype(np.int64)
        return [self._segment(head, document, answers, *place) for place in self._places(example)]

    def _places(self, example: int) -> list[tuple[int, int]]:
        return cut(int(self.document_length[example]), int(self.room[example]), self.max_segments)

    def _segment(self, head: np.ndarray, document: np.ndarray, answers: np.ndarray, begin: int, end: int) -> Segment:
        tokens = np.concatenate([head, document[begin:end], [self.symbols.eos]])
        positions = np.arange(len(tokens))
        piece = ((positions >= len(head)) & (positions < len(tokens) - 1)).astype(np.int64)
        is_global = (positions < len(head) - 1) & self.use_global
        return Segment(tokens, is_global, {"piece": piece}, mark_spans(answers, begin, end, len(head), len(tokens)))

    def _has_answer(self) -> np.ndarray:
        """(n,) bool; answers do not span segments, and those that are cut off count nothing."""
        spans, example = self.split.all_answers()
        room = self.room[example]
        is_held = (spans[:, 1] <= self.document_length[example]) & (spans[:, 0] // room == (spans[:, 1] - 1) // room)
        return np.bincount(example[is_held], minlength=len(self.split)) > 0

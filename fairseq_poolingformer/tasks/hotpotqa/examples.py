"""HotpotQA with distractors (Yang et al. 2018): an answer from several paragraphs, and the sentences that prove it.

A segment is ``<s> [q] question [/q] <t> title </t> sentence [s] sentence [s] … <t> title </t> … </s>``; ``<s>``, the
question, ``<t>`` and ``[s]`` are global (Longformer, §6.1 and appendix D). ``<t>`` says whether its paragraph is
relevant, ``[s]`` whether the sentence before it is a supporting fact, ``<s>`` whether the answer is a piece of the
text, yes or no.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
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

PARAGRAPH_COLUMNS = ("title_size", "num_sentences", "is_relevant")
SENTENCE_COLUMNS = ("size", "is_supporting")
UNKNOWN = -1  # answer type of an example whose answer is not public


class AnswerType(IntEnum):
    """The kinds of answers, numbered as in the data folder and in the output layer."""

    SPAN = 0
    YES = 1
    NO = 2


@dataclass(frozen=True)
class HotpotqaSplit(Split):
    """One split.

    ``document`` has, for each paragraph, the tokens of its title and of its sentences; ``paragraph`` and ``sentence``
    have rows of :data:`PARAGRAPH_COLUMNS` and :data:`SENTENCE_COLUMNS`; ``answer`` has the first document token and the
    one after the last of every place of the answer; ``answer_type`` has one number, or none where it is not public.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess hotpotqa",
        ids=("question", "document"),
        numbers=("paragraph", "sentence", "answer", "answer_type"),
        texts=("id", "titles", "notes"),
    )

    question: Sequences
    document: Sequences
    paragraph: Sequences
    sentence: Sequences
    answer: Sequences
    answer_type: Sequences

    def paragraphs(self, example: int) -> np.ndarray:
        """(P, 3) rows of :data:`PARAGRAPH_COLUMNS`."""
        return self.paragraph[example].reshape(-1, len(PARAGRAPH_COLUMNS))

    def sentences(self, example: int) -> np.ndarray:
        """(S, 2) rows of :data:`SENTENCE_COLUMNS`."""
        return self.sentence[example].reshape(-1, len(SENTENCE_COLUMNS))

    def check(self) -> None:
        columns = ((self.paragraph, PARAGRAPH_COLUMNS), (self.sentence, SENTENCE_COLUMNS), (self.answer, (0, 1)))
        for sequences, names in columns:
            refuse(sequences, sequences.sizes % len(names) != 0, f"not rows of {len(names)}")
        titles, counts, _ = np.asarray(self.paragraph.values).reshape(-1, len(PARAGRAPH_COLUMNS)).T
        sizes, _ = np.asarray(self.sentence.values).reshape(-1, len(SENTENCE_COLUMNS)).T
        paragraph_bounds = self.paragraph.bounds // len(PARAGRAPH_COLUMNS)
        sentence_bounds = self.sentence.bounds // len(SENTENCE_COLUMNS)
        refuse(
            self.sentence, _sums(counts, paragraph_bounds) != np.diff(sentence_bounds), "not all paragraphs' sentences"
        )
        tokens = _sums(titles, paragraph_bounds) + _sums(sizes, sentence_bounds)
        refuse(self.document, tokens != self.document.sizes, "titles and sentences have another number of tokens")
        refuse(self.answer_type, self.answer_type.sizes > 1, "more than one type of answer")


def _sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """(n,) sums of the values from each bound to the next one."""
    return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])[bounds])


class HotpotqaExamples(Examples):
    """The examples of a split.

    Args:
        split: the arrays.
        symbols: of the dictionary.
        max_positions: tokens of a segment at most.
        max_question_length: tokens that longer questions are cut to.
        max_segments: leave out what is beyond so many segments of an example; 0 for no limit.
        use_global: make ``<s>``, the question and the marks of titles and sentences global.

    Raises:
        ValueError: a segment has no room for a document.
    """

    def __init__(
        self,
        split: HotpotqaSplit,
        symbols: Symbols,
        max_positions: int,
        max_question_length: int = MAX_QUESTION_LENGTH,
        max_segments: int = 0,
        use_global: bool = True,
    ) -> None:
        num_symbols = 4  # <s> [q] [/q] </s>
        if max_question_length < 1 or max_positions <= max_question_length + num_symbols:
            raise ValueError(
                f"--max-question-length {max_question_length} with {num_symbols} special symbols leaves no room for a "
                f"document in --max-positions {max_positions} tokens"
            )
        self.split, self.symbols, self.use_global, self.max_segments = split, symbols, use_global, max_segments
        question = cut_questions(split.question, max_question_length)
        self.question_length = question
        self.room = max_positions - question - num_symbols
        marks = 2 * (split.paragraph.sizes // len(PARAGRAPH_COLUMNS)) + split.sentence.sizes // len(SENTENCE_COLUMNS)
        body = split.document.sizes.astype(np.int64) + marks
        pieces = count_pieces(body, self.room, max_segments)
        self.sizes = np.minimum(body, pieces * self.room) + pieces * (question + num_symbols)

    @property
    def known(self) -> np.ndarray:
        return self.split.answer_type.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        marks = self.symbols.marks
        question = self.split.question[example][: self.question_length[example]]
        head = np.concatenate([[self.symbols.bos, marks["[q]"]], question, [marks["[/q]"]]]).astype(np.int64)
        body = self._body(example)
        places = cut(len(body.tokens), int(self.room[example]), self.max_segments)
        return [self._segment(head, body, begin, end) for begin, end in places]

    def targets(self, example: int) -> dict[str, int]:
        answer_type = self.split.answer_type[example]
        return {"answer_type": int(answer_type[0]) if len(answer_type) else UNKNOWN}

    def _body(self, example: int) -> _Body:
        body = _Body(self.split.document[example], self.symbols.marks)
        sentences = enumerate(self.split.sentences(example).tolist(), 1)
        for number, (title_size, num_sentences, is_relevant) in enumerate(self.split.paragraphs(example).tolist(), 1):
            body.mark("<t>", paragraph=number, relevant=is_relevant)
            body.text(title_size)
            body.mark("</t>")
            for sentence, (size, is_supporting) in itertools.islice(sentences, num_sentences):
                body.text(size)
                body.mark("[s]", sentence=sentence, supporting=is_supporting)
        body.finish(self.split.answer[example].reshape(-1, 2))
        return body

    def _segment(self, head: np.ndarray, body: _Body, begin: int, end: int) -> Segment:
        tokens = np.concatenate([head, body.tokens[begin:end], [self.symbols.eos]])

        def columns(*names: str) -> dict[str, np.ndarray]:
            edges = np.zeros(len(head), np.int64), np.zeros(1, np.int64)
            return {name: np.concatenate([edges[0], body.columns[name][begin:end], edges[1]]) for name in names}

        inputs = columns("paragraph", "sentence", "piece")
        is_global = (np.arange(len(tokens)) < len(head)) | (inputs["paragraph"] > 0) | (inputs["sentence"] > 0)
        spans = mark_spans(body.answers, begin, end, len(head), len(tokens))
        return Segment(tokens, is_global & self.use_global, inputs, columns("relevant", "supporting") | spans)


class _Body:
    """The paragraphs of an example with their marks.

    Args:
        document: tokens without marks.
        marks: dictionary indices.

    Attributes:
        tokens: (T,) with marks.
        columns: (T,) for each name: ``paragraph`` and ``sentence`` number the marks of these, from 1; ``piece`` numbers
            the pieces of text between marks; ``relevant`` and ``supporting`` are the targets of marks; 0 elsewhere.
        answers: (A, 2) half-open spans of ``tokens``.
    """

    def __init__(self, document: np.ndarray, marks: Mapping[str, int]) -> None:
        self._document, self._marks = document, marks
        self._tokens: list[np.ndarray] = [np.zeros(0, np.int64)]
        self._at: list[tuple[int, dict[str, int]]] = []  # position and values of each mark
        self._pieces: list[tuple[int, int]] = []  # position and size of each piece of text
        self._size = self._read = 0

    def mark(self, name: str, **values: int) -> None:
        """Append a mark with its values in columns."""
        self._tokens.append(np.array([self._marks[name]]))
        self._at.append((self._size, values))
        self._size += 1

    def text(self, size: int) -> None:
        """Append the next tokens of the document."""
        self._tokens.append(self._document[self._read : self._read + size])
        self._pieces.append((self._size, size))
        self._size, self._read = self._size + size, self._read + size

    def finish(self, answers: np.ndarray) -> None:
        """Make the attributes; ``answers``, (A, 2), are spans of the document."""
        self.tokens = np.concatenate(self._tokens).astype(np.int64)
        names = ("paragraph", "sentence", "piece", "relevant", "supporting")
        self.columns = {name: np.zeros(self._size, np.int64) for name in names}
        for position, values in self._at:
            for name, value in values.items():
                self.columns[name][position] = value
        for number, (position, size) in enumerate(self._pieces, 1):
            self.columns["piece"][position : position + size] = number
        position_of = np.flatnonzero(self.columns["piece"])
        self.answers = np.column_stack([position_of[answers[:, 0]], position_of[answers[:, 1] - 1] + 1])

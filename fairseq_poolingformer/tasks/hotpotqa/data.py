"""HotpotQA with distractors (Yang et al. 2018): an answer from several paragraphs, and the sentences that prove it.

A segment is ``<s> [q] question [/q] <t> title </t> sentence [s] sentence [s] … <t> title </t> … </s>``; ``<s>``, the
question, ``<t>`` and ``[s]`` are global (Longformer, §6.1 and appendix D). ``<t>`` says whether its paragraph is
relevant, ``[s]`` whether the sentence before it is a supporting fact, ``<s>`` whether the answer is a piece of the
text, yes or no.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from operator import add
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import Overlap, hotpotqa_words, overlap
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
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import as_object, list_of, placed, text_of
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse, sums

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
    """One split; ``answer`` has first and end token of every place, ``document`` titles and sentences in order."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess hotpotqa",
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
            self.sentence, sums(counts, paragraph_bounds) != np.diff(sentence_bounds), "not all paragraphs' sentences"
        )
        tokens = sums(titles, paragraph_bounds) + sums(sizes, sentence_bounds)
        refuse(self.document, tokens != self.document.sizes, "titles and sentences have another number of tokens")
        refuse(self.answer_type, self.answer_type.sizes > 1, "more than one type of answer")


class HotpotqaExamples(Examples):
    """The examples of a split; ``max_question_length`` is the tokens that longer questions are cut to."""

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
        tokens, columns = self._marked(example)
        answers, place = self.split.answer[example].reshape(-1, 2), np.flatnonzero(columns["piece"])
        spans = np.column_stack([place[answers[:, 0]], place[answers[:, 1] - 1] + 1])
        pieces = cut(len(tokens), int(self.room[example]), self.max_segments)
        return [self._segment(head, tokens, columns, spans, *piece) for piece in pieces]

    def targets(self, example: int) -> dict[str, int]:
        answer_type = self.split.answer_type[example]
        return {"answer_type": int(answer_type[0]) if len(answer_type) else UNKNOWN}

    def _marked(self, example: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """An example's paragraphs with their marks."""
        rows: list[tuple[str, int, dict[str, int]]] = []  # a mark, or none for a text; tokens; values of columns
        sentences = enumerate(self.split.sentences(example).tolist(), 1)
        for number, (title_size, num_sentences, is_relevant) in enumerate(self.split.paragraphs(example).tolist(), 1):
            rows.append(("<t>", 1, {"paragraph": number, "relevant": is_relevant}))
            rows += [("", title_size, {}), ("</t>", 1, {})]
            for sentence, (size, is_supporting) in itertools.islice(sentences, num_sentences):
                rows += [("", size, {}), ("[s]", 1, {"sentence": sentence, "supporting": is_supporting})]
        sizes = np.array([size for _, size, _ in rows], np.int64)

        def spread(values: Iterable[int]) -> np.ndarray:
            return np.repeat(np.fromiter(values, np.int64), sizes)

        names = ("paragraph", "sentence", "relevant", "supporting")
        columns = {name: spread(values.get(name, 0) for *_, values in rows) for name in names}
        numbers = itertools.count(1)
        columns["piece"] = spread(0 if mark else next(numbers) for mark, *_ in rows)
        tokens = spread(self.symbols.marks.get(mark, 0) for mark, *_ in rows)
        tokens[columns["piece"] > 0] = self.split.document[example]
        return tokens, columns

    def _segment(
        self,
        head: np.ndarray,
        tokens: np.ndarray,
        columns: dict[str, np.ndarray],
        spans: np.ndarray,
        begin: int,
        end: int,
    ) -> Segment:
        tokens = np.concatenate([head, tokens[begin:end], [self.symbols.eos]])
        columns = {name: np.pad(column[begin:end], (len(head), 1)) for name, column in columns.items()}
        is_global = (np.arange(len(tokens)) < len(head)) | (columns["paragraph"] > 0) | (columns["sentence"] > 0)
        targets = mark_spans(spans, begin, end, len(head), len(tokens))
        targets |= {name: columns.pop(name) for name in ("relevant", "supporting")}
        return Segment(tokens, is_global & self.use_global, columns, targets)


PARAGRAPH_SCORES = "paragraph_scores"  # a key beside those of the official format; null: not read
_WHOLE_ANSWERS = (["yes"], ["no"], ["noanswer"])  # they share no word with any other answer

Fact = tuple[str, int]  # a paragraph's title, and the number of a sentence in it from 0
Gold = list[tuple[str, str, tuple[Fact, ...]]]  # each question's id, right answer and supporting facts
Predictions = tuple[Mapping[str, str], Mapping[str, Sequence[Fact]]]  # answers and facts; a question may lack either


def facts_of(record: Mapping[str, object], key: str) -> tuple[Fact, ...]:
    """Read the list of supporting facts under a key."""
    facts = []
    for value in list_of(record, key):
        is_pair = isinstance(value, list) and len(value) == 2
        if not is_pair or not isinstance(value[0], str) or not isinstance(value[1], int) or isinstance(value[1], bool):
            raise ValueError(f"{key!r} must hold pairs of a title and the number of a sentence, holds {value!r}"[:200])
        facts.append((value[0], value[1]))
    return tuple(facts)


def read_gold(path: Path) -> Gold:
    """Read the right answers of a released file, such as ``hotpot_dev_distractor_v1.json``."""
    values = read_json_file(path, list)
    gold = []
    for number, value in enumerate(values):
        with placed(path, f"question {number}"):
            record = as_object(value, "a question")
            if "answer" not in record:
                raise ValueError("no 'answer': those of the test set are not public")
            gold.append((text_of(record, "_id"), text_of(record, "answer"), facts_of(record, "supporting_facts")))
    if not gold:
        raise ValueError(f"{path}: no questions in it")
    return gold


def read_predictions(path: Path) -> Predictions:
    """Read predictions in the official format, ``{"answer": {question: answer}, "sp": {question: facts}}``."""
    content = read_json_file(path, unique=True)
    with placed(path):
        answers, facts = (as_object(content.get(key), f"{key!r}") for key in ("answer", "sp"))
        answers = {key: text_of(answers, key) for key in answers}
        return answers, {key: facts_of(facts, key) for key in facts}


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official figures of a prediction file."""
    right = [question for path in gold for question in read_gold(path)]
    predicted = read_predictions(predictions)
    answered = [question for question in right if question[0] in predicted[0]]
    if not answered:
        raise ValueError(f"{predictions}: no question of the gold data has an answer; are they of another split?")
    counts = {"without_prediction": len(right) - len(answered)}
    right = answered if predicted_only else right
    return {name: 100 * value for name, value in figures(right, predicted).items()} | {"examples": len(right)} | counts


def figures(gold: Gold, predictions: Predictions) -> dict[str, float]:
    """Compute the official script's figures, 0 to 1; joint precision and recall are products of answer's and facts'."""
    values = {
        f"{part}{name}": [0.0] * len(gold) for part in ("", "sp_", "joint_") for name in ("em", "f1", "prec", "recall")
    }

    def put(number: int, part: str, exact: float, measure: Overlap) -> None:
        for name, value in (("em", exact), ("f1", measure.f1), ("prec", measure.precision), ("recall", measure.recall)):
            values[f"{part}{name}"][number] = value

    for number, (name, right_answer, right_facts) in enumerate(gold):
        answer, facts = (part.get(name) for part in predictions)
        if answer is not None:
            predicted, wanted = hotpotqa_words(answer), hotpotqa_words(right_answer)
            answer_exact, answer_found = predicted == wanted, overlap(predicted, wanted)
            if not answer_exact and (predicted in _WHOLE_ANSWERS or wanted in _WHOLE_ANSWERS):
                answer_found = Overlap()
            put(number, "", answer_exact, answer_found)
        if facts is not None:
            named, right = set(facts), set(right_facts)
            facts_exact, facts_found = named == right, Overlap.of(len(named & right), len(named), len(right))
            put(number, "sp_", facts_exact, facts_found)
        if answer is not None and facts is not None:
            precision = answer_found.precision * facts_found.precision
            recall = answer_found.recall * facts_found.recall
            put(number, "joint_", answer_exact * facts_exact, Overlap.between(precision, recall))
    return {name: reduce(add, column, 0.0) / len(gold) for name, column in values.items()}

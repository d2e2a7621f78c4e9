"""TriviaQA (Joshi et al. 2017): which piece of a document answers a question.

A segment is ``<s> question </s> document </s>``, with ``<s>`` and the question global (Longformer, §6.1 and appendix
D). An example is a question with one of its documents; any occurrence of any alias of the answer is right. The
Wikipedia set has one prediction a question, the web set one of every question and document, ``QUESTION--FILENAME``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import merged, overlap, triviaqa_words
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
from fairseq_poolingformer.text.split import Split, refuse

logger = logging.getLogger(__name__)

NUM_SPECIAL_SYMBOLS = 3  # <s>, </s> between question and document, </s>


@dataclass(frozen=True)
class TriviaqaSplit(Split):
    """One split; ``answer`` has the first document token and the one after the last of every occurrence, ascending."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess triviaqa",
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
        lengths = np.minimum(whole, max_length - question - NUM_SPECIAL_SYMBOLS) if max_length else whole
        pieces = count_pieces(lengths, self.room, max_segments)
        self.document_length = np.minimum(lengths, pieces * self.room)
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
        places = cut(int(self.document_length[example]), int(self.room[example]), self.max_segments)
        return [self._segment(head, document, answers, *place) for place in places]

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


DOMAINS = WIKIPEDIA, WEB = ("Wikipedia", "Web")
PAGE_LISTS = ("EntityPages", "SearchResults")


def prediction_key(domain: str, question_id: str, filename: str) -> str:
    """The key of a question's prediction in a domain, ``"Wikipedia"`` or ``"Web"``."""
    return question_id if domain == WIKIPEDIA else f"{question_id}--{filename}"


def right_answers(answer: Mapping[str, object]) -> list[str]:
    """The texts that count as right: normalized aliases, and the answers that people gave in the verified set."""
    texts = list(list_of(answer, "NormalizedAliases"))
    if "HumanAnswers" in answer:
        texts += list_of(answer, "HumanAnswers")
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("'NormalizedAliases' and 'HumanAnswers' must be strings, and there must be one at least")
    return texts


def read_gold(path: Path) -> dict[str, list[str]]:
    """Read the right answers of a released file; of a verified set, those of its verified questions and documents."""
    data = read_json_file(path)
    domain = data.get("Domain")
    if domain not in DOMAINS:
        raise ValueError(f"{path}: 'Domain' must be {WIKIPEDIA} or {WEB}, is {domain!r}; is this TriviaQA?")
    is_verified = data.get("VerifiedEval") is True
    gold: dict[str, list[str]] = {}
    for number, value in enumerate(list_of(data, "Data")):
        with placed(path, f"question {number}"):
            question = as_object(value, "a question")
            if is_verified and question.get("QuestionPartOfVerifiedEval") is not True:
                continue
            if "Answer" not in question:
                raise ValueError("no 'Answer': those of a test set are not public")
            texts = right_answers(as_object(question["Answer"], "'Answer'"))
            for key in _keys(question, domain, is_verified):
                gold[key] = texts
    if not gold:
        raise ValueError(f"{path}: no questions in it")
    return gold


def _keys(question: dict, domain: str, is_verified: bool) -> Iterable[str]:
    question_id = text_of(question, "QuestionId")
    if domain == WIKIPEDIA:
        yield question_id
        return
    for name in PAGE_LISTS:
        for number, value in enumerate(list_of(question, name) if name in question else ()):
            page = as_object(value, f"{name}[{number}]")
            if not is_verified or page.get("DocPartOfVerifiedEval") is True:
                yield prediction_key(domain, question_id, text_of(page, "Filename"))


def read_predictions(path: Path) -> dict[str, str]:
    """Read predictions in the official format, ``{key: answer}``."""
    predictions = read_json_file(path, unique=True)
    for key, answer in predictions.items():
        if not isinstance(answer, str):
            raise ValueError(f"{path}: the prediction of {key!r} must be a string, is {json.dumps(answer)[:60]}")
    return predictions


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official figures of a prediction file."""
    right = merged(gold, read_gold)
    answers = read_predictions(predictions)
    if not right.keys() & answers.keys():
        raise ValueError(
            f"{predictions}: no key of the gold data has a prediction; those of the Wikipedia set are questions, those "
            "of the web set QUESTION--FILENAME"
        )
    counted = {key: texts for key, texts in right.items() if not predicted_only or key in answers}
    counts = {"examples": len(counted), "without_prediction": len(right.keys() - answers.keys())}
    return figures(counted, answers) | counts


def figures(gold: Mapping[str, list[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Compute the figures of the official script, × 100; a key without a prediction counts 0."""
    values = np.zeros((2, len(gold)))
    for number, (key, texts) in enumerate(gold.items()):
        if key in predictions:
            predicted = triviaqa_words(predictions[key])
            right = [triviaqa_words(text) for text in texts]
            values[:, number] = predicted in right, max(overlap(predicted, words).f1 for words in right)
    exact, f1 = (100.0 * reduce(add, column.tolist()) / len(gold) for column in values)
    return {"exact_match": exact, "f1": f1}

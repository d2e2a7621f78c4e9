"""TriviaQA's right answers, predictions and official figures.

A question of the Wikipedia set has one prediction, whatever number of documents it has. The web set asks for one of
every question and document, whose key is ``QUESTION--FILENAME``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.gold import merged
from fairseq_poolingformer.tasks.shared.normalized_text import overlap, triviaqa_words
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import as_object, list_of, placed, text_of

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
    domain = domain_of(data, path)
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


def domain_of(data: Mapping[str, object], path: Path) -> str:
    """The domain that a released file names."""
    if data.get("Domain") not in DOMAINS:
        raise ValueError(f"{path}: 'Domain' must be {WIKIPEDIA} or {WEB}, is {data.get('Domain')!r}; is this TriviaQA?")
    return data["Domain"]


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


def figures(gold: Mapping[str, list[str]], predictions: Mapping[str, str]) -> dict[str, Mean]:
    """Compute the figures of the official script, × 100; a key without a prediction counts 0."""
    values = np.zeros((2, len(gold)))
    for number, (key, texts) in enumerate(gold.items()):
        if key in predictions:
            predicted = triviaqa_words(predictions[key])
            right = [triviaqa_words(text) for text in texts]
            values[:, number] = predicted in right, max(overlap(predicted, words).f1 for words in right)
    exact, f1 = (Mean.of(100.0 * reduce(add, column.tolist()) / len(gold), 100 * column) for column in values)
    return {"exact_match": exact, "f1": f1}

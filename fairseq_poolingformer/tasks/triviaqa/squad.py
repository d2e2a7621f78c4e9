"""Exact match and F1 of SQuAD v1.1 and v2.0, as the official scripts compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path

from fairseq_poolingformer.tasks.shared.answers import exact_match, f1, hotpotqa_words
from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.triviaqa.data import read_predictions
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_file import read_json_file

_ANSWERED, _UNANSWERABLE = "HasAns", "NoAns"

Scores = dict[str, float]  # of questions


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official figures of a prediction file, ``{id: answer}``; v2.0 needs a prediction of each question."""
    answers, is_v2 = read_gold(gold)
    texts = read_predictions(predictions)
    missing = [name for name in answers if name not in texts]
    if len(missing) == len(answers):
        raise ValueError(f"{predictions}: no question of the gold data has a prediction; are they of another split?")
    if predicted_only:
        answers = {name: right for name, right in answers.items() if name in texts}
    elif missing and is_v2:
        text = f"{len(missing)} of {len(answers)} ids have no prediction, such as {missing[0]!r}"
        raise ValueError(f"{predictions}: {text}; v2.0 needs all")
    figures = score_v2(answers, texts) if is_v2 else score_v1(answers, texts)
    return figures | {"examples": len(answers), "without_prediction": len(missing)}


def read_gold(paths: Sequence[Path]) -> tuple[dict[str, list[str]], bool]:
    """Read the right answers to each question, none where it has none, and whether this is v2.0."""
    gold: dict[str, list[str]] = {}
    is_v2 = False
    for path in paths:
        name: object = "?"
        try:
            for article in json_values.list_of(read_json_file(path), "data"):
                for paragraph in json_values.list_of(json_values.as_object(article, "an article"), "paragraphs"):
                    for value in json_values.list_of(json_values.as_object(paragraph, "a paragraph"), "qas"):
                        question = json_values.as_object(value, "a question")
                        name = json_values.text_of(question, "id")
                        if name in gold:
                            raise ValueError("it comes a second time")
                        answers = [
                            json_values.as_object(one, "an answer") for one in json_values.list_of(question, "answers")
                        ]
                        gold[name] = [json_values.text_of(answer, "text") for answer in answers]
                        is_v2 = is_v2 or not answers or "is_impossible" in question
        except ValueError as error:
            raise ValueError(f"{path}, question {name}: {error}") from None
    if not gold:
        raise ValueError(f"{', '.join(map(str, paths))}: no questions in it")
    return gold, is_v2


def question_scores(
    gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str], is_v2: bool
) -> dict[str, Scores]:
    """Exact match and F1 of each question, 0 to 1; v1.1 gives 0 without a prediction, v2.0 needs all."""
    exact, overlap = ("exact", _f1_or_none) if is_v2 else ("exact_match", f1)
    found: dict[str, Scores] = {exact: {}, "f1": {}}
    for name, answers in gold.items():
        texts = [text for text in answers if hotpotqa_words(text)] or [""] if is_v2 else answers
        for figure, measure in ((exact, exact_match), ("f1", overlap)):
            is_there = is_v2 or name in predictions
            found[figure][name] = max(measure(predictions[name], text) for text in texts) if is_there else 0.0
    return found


def score_v1(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float | int]:
    """The figures of v1.1; a question without a prediction counts 0."""
    scores = question_scores(gold, predictions, is_v2=False)
    return {
        figure: Mean.of(100.0 * reduce(add, values.values(), 0.0) / len(gold), [100 * one for one in values.values()])
        for figure, values in scores.items()
    }


def score_v2(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float | int]:
    """The figures of v2.0, of all questions and of those with and without answers."""
    scores = question_scores(gold, predictions, is_v2=True)
    figures = _means(scores, list(gold))
    for kind, wanted in ((_ANSWERED, True), (_UNANSWERABLE, False)):
        if names := [name for name, texts in gold.items() if bool(texts) == wanted]:
            figures |= {f"{kind}_{figure}": value for figure, value in _means(scores, names).items()}
    return figures


def _f1_or_none(prediction: str, text: str) -> float:
    if not (hotpotqa_words(prediction) and hotpotqa_words(text)):
        return int(exact_match(prediction, text))
    return f1(prediction, text)


def _means(scores: Mapping[str, Scores], names: Sequence[str]) -> dict[str, float | int]:
    columns = {figure: [values[name] for name in names] for figure, values in scores.items()}
    means = {
        figure: Mean.of(100.0 * sum(column) / len(names), [100 * one for one in column])
        for figure, column in columns.items()
    }
    return means | {"total": len(names)}

"""SQuAD's figures, as its scripts for v1.1 and v2.0 compute them: ``poolingformer-score``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path

from fairseq_poolingformer.command import add_gold, add_of_examples, given_predictions
from fairseq_poolingformer.tasks.presets.scores import mismatch, print_figures, read_predictions
from fairseq_poolingformer.tasks.shared.answers import exact_match, f1, hotpotqa_words
from fairseq_poolingformer.tasks.shared.estimates import Mean, intervals
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_file import read_json_file

Scores = dict[str, float]  # of questions


def make_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Score answers to SQuAD's questions, v1.1 or v2.0.")
    add_gold(parser, "SQuAD's released files")
    add_of_examples(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure here, unrounded")
    return parser


def run(args: argparse.Namespace) -> None:
    gold, is_v2 = read_gold(args.gold)
    file = given_predictions(args)
    predictions = read_predictions(Path(file))
    missing = len(gold.keys() - predictions.keys())
    if args.predicted_only and gold.keys() & predictions.keys():
        gold = {name: texts for name, texts in gold.items() if name in predictions}
    if is_v2:
        mismatch(file, gold, predictions, may_have_more=True)
        figures = score_v2(gold, predictions)
    else:
        if not gold.keys() & predictions.keys():
            mismatch(file, gold, predictions, may_have_more=True)
        figures = score_v1(gold, predictions)
    figures |= {"examples": len(gold), "without_prediction": missing}
    entries = {"kind": "squad", "version": "2.0" if is_v2 else "1.1"}
    print_figures({"squad": figures}, args.json, entries, {"squad": intervals(figures)} if args.intervals else None)


def read_gold(paths: Sequence[str | Path]) -> tuple[dict[str, list[str]], bool]:
    """Read the right answers to each question, none where it has none, and whether this is v2.0."""
    gold: dict[str, list[str]] = {}
    is_v2 = False
    for path in map(Path, paths):
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
    """What each question adds to exact match and F1, from 0 to 1: nothing where v1.1 has no prediction."""
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
    """The figures of v2.0."""
    scores = question_scores(gold, predictions, is_v2=True)
    figures: dict[str, float | int] = _means(scores, list(gold))
    for kind, wanted in (("HasAns", True), ("NoAns", False)):
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

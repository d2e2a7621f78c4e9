"""Every task: what a model is given, what its outputs say, the official figures, and the baselines."""

import json

import numpy as np
import pytest

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.tasks import IGNORED, TASKS
from fairseq_poolingformer.tasks.triviaqa.squad import score_v2
from tests.cli.finetune.conftest import read


def make(path, place, length=46):
    data = read(path)
    return TASKS[data.task](data, Base("me", place, data.task), length), data.splits["train"]


def perfect(task, examples):
    """The right predictions."""
    return {
        "reviews.csv": lambda one: one.label,
        "amounts.jsonl": lambda one: float(one.label),
        "several.jsonl": lambda one: [one.label] if isinstance(one.label, str) else list(one.label),
        "pairs.jsonl": lambda one: one.texts[1],
        "squad.json": lambda one: (one.texts[1][slice(*one.answers[0])], 0.0) if one.answers else ("", 1.0),
    }[task.data.name.rpartition("/")[2]]


@pytest.mark.parametrize("name", ["reviews.csv", "several.jsonl", "amounts.jsonl", "squad.json", "pairs.jsonl"])
def test_right_predictions_have_all_points_and_baselines_an_interval(files, roberta, bart, name):
    task, _ = make(files / name, bart if name == "pairs.jsonl" else roberta)
    examples = task.data.splits["test"]
    best = {
        "amounts.jsonl": {"pearson": 100, "spearman": 100, "mse": 0},
        "several.jsonl": {"accuracy": 100, "f1": 100},
        "squad.json": {"exact": 100, "f1": 100},
        "pairs.jsonl": {"rouge1": 100, "rouge2": 100, "rougeL": 100},
        "reviews.csv": {"accuracy": 100, "macro_f1": 100},
    }[name]
    found = task.evaluate("test", [perfect(task, examples)(one) for one in examples])
    assert {figure: found[figure]["mean"] for figure in best} == pytest.approx(best, abs=1e-9)
    assert all("low" in one for figure, one in found.items() if figure in best)
    baselines = task.baselines(examples)
    assert len(baselines) >= (1 if name == "pairs.jsonl" else 2)
    for predictions in baselines.values():
        figures = task.evaluate("test", predictions)
        assert all(
            0 <= figures[figure]["low"] <= figures[figure]["high"] or figure in ("pearson", "spearman")
            for figure in best
        )
    assert all(json.loads(line) for line in task.lines(examples, predictions))


def test_a_word_that_decides_is_found_by_the_linear_baseline(files, roberta):
    task, train = make(files / "reviews.csv", roberta)
    usual, linear = task.baselines(train).values()
    assert linear == [one.label for one in train]
    assert len(set(usual)) == 1


def test_logits_of_labels(files, roberta):
    task, train = make(files / "reviews.csv", roberta)
    features = task.features(train[:4])
    assert [task.names[one["labels"]] for one in features] == [one.label for one in train[:4]]
    assert task.decode(train[:2], features, np.array([[0.0, 1], [2, 1]])) == [task.names[1], task.names[0]]
    several, train = make(files / "several.jsonl", roberta)
    assert several.names == ["a", "b", "c"]
    assert several.decode(train[:1], [], np.array([[0.1, -1, 2]])) == [["a", "c"]]
    features = several.features(train)
    wanted = [[float(name in one.label) for name in "abc"] for one in train]
    assert [one["labels"] for one in features] == wanted


def test_answers_are_found_where_they_lie_and_none_is_an_answer(files, roberta):
    task, train = make(files / "squad.json", roberta)
    examples = [next(one for one in train if one.answers), next(one for one in train if not one.answers)]
    features = task.features(examples)
    assert len(features) > 4, "documents are longer than the model"
    outputs = [[], []]
    for one in features:
        for side, name in enumerate(("start_positions", "end_positions")):
            outputs[side].append(np.where(np.arange(len(one["input_ids"])) == one[name], 20.0, 0.0))
    (text, none), (_, chance) = task.decode(examples, features, outputs)
    first, end = examples[0].answers[0]
    assert text.strip() == examples[0].texts[1][first:end]
    assert chance > 0.99 > 0.5 > none


def test_a_threshold_decides_between_no_answer_and_a_wrong_one(files, roberta):
    task, train = make(files / "squad.json", roberta)
    predictions = [("wrong", 0.3) for _ in train]
    assert task.figures(train, predictions)["NoAns_f1"] == 0
    threshold = task.figures(train, predictions)["best_f1_thresh"]
    task.threshold = threshold
    assert task.figures(train, predictions)["NoAns_f1"] == 100
    gold = {one.id: [one.texts[1][a:b] for a, b in one.answers] for one in train}
    alone = score_v2(gold, dict.fromkeys(gold, "wrong"), dict.fromkeys(gold, 0.3), threshold)
    assert task.figures(train, predictions)["f1"] == alone["f1"]
    assert set(json.loads(task.lines(train, predictions)[0]).values()) == {""}


def test_summaries_are_cut_to_what_is_learned(files, bart):
    task, train = make(files / "pairs.jsonl", bart, 40)
    features = task.features(train)
    assert max(len(one["input_ids"]) for one in features) == 40
    tokens = np.array([[*features[0]["labels"], IGNORED, IGNORED]])
    assert task.decode(train[:1], features[:1], tokens) == [train[0].texts[1]]

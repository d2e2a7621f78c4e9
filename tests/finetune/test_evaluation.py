"""What predictions are worth: the scorers' own figures, of the examples that both sides have, for every task."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq_poolingformer.preprocess.guess import guess

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.finetune import evaluation
from fairseq_poolingformer.finetune.results import as_text
from fairseq_poolingformer.tasks.presets.squad import score_v2
from fairseq_poolingformer.tasks.shared.estimates import bootstrap_means


class Scorer:
    """Runs ``poolingformer score`` in this process."""

    def __init__(self):
        self.lines = []

    def run(self, program, command, *words, output, take=None):
        self.lines.append([program, command, *map(str, words)])
        assert score.main([str(word) for word in words]) == 0


def compared(tmp_path, task, gold, predictions):
    """The figures, and how many examples they are of."""
    file, name = tmp_path / "test.predictions", "squad" if task == "triviaqa" else task
    text = json.dumps(predictions) if task == "triviaqa" else "".join(f"{json.dumps(one)}\n" for one in predictions)
    file.write_text(text)
    scorer = Scorer()
    found = evaluation._score(scorer, SimpleNamespace(task=task, scorer=name), gold, file)
    assert all(one[:4] == ["poolingformer", "score", "--task", name] for one in scorer.lines)
    return found["figures"], found.get("examples")


def test_one_label(tmp_path):
    gold = {str(n): {"label": "ab"[n % 2]} for n in range(5)}
    predictions = [{"id": str(n), "label": "a"} for n in (0, 1, 2, 3, 7)]  # the last one has no known label
    figures, count = compared(tmp_path, "document_classification", gold, predictions)
    assert set(figures) == {"accuracy"}
    assert (figures["accuracy"]["mean"], count) == (50, 4)
    [expected] = bootstrap_means(np.array([[100.0], [0], [100], [0]]))
    assert (figures["accuracy"]["low"], figures["accuracy"]["high"]) == (expected.low, expected.high)


def test_several_labels(tmp_path):
    gold = {"0": {"label": ["a", "b"]}, "1": {"label": []}, "2": {"label": ["a"]}}
    predictions = [{"id": "0", "label": ["a"]}, {"id": "1", "label": []}, {"id": "2", "label": ["a"]}]
    figures, _ = compared(tmp_path, "document_classification", gold, predictions)
    assert set(figures) == {"accuracy", "precision", "recall", "f1", "macro_f1"}
    assert figures["accuracy"]["mean"] == pytest.approx(200 / 3)
    assert figures["f1"] == {"mean": 80}


def test_amounts(tmp_path):
    gold = {str(n): {"label": float(n)} for n in range(4)}
    predictions = [{"id": str(n), "label": n + 0.5} for n in range(4)]
    figures, _ = compared(tmp_path, "document_classification", gold, predictions)
    assert figures["mse"] == {"mean": 0.25, "low": 0.25, "high": 0.25}
    assert figures["pearson"]["mean"] == pytest.approx(100)
    text = as_text({"split": "test", "examples": 4, "figures": figures, "without_prediction": 2})
    assert re.search(r"mse \(not in %\) +0.25 +\[0.25, 0.25\]", text)
    assert "2 more were rejected before" in text


def test_labels_of_words(tmp_path):
    words = {"tokens": ["Jim", "Henson", "was"], "sentences": [3]}
    gold = {"0": {**words, "labels": ["B-PER", "I-PER", "O"]}}
    figures, _ = compared(tmp_path, "token_labels", gold, [{"id": "0", **words, "labels": ["B-PER", "O", "O"]}])
    assert (figures["f1"]["mean"], figures["accuracy"]["mean"]) == (0, pytest.approx(200 / 3))


def asked(answers):
    return {name: {"answers": [{"text": text} for text in texts]} for name, texts in answers.items()}


def test_questions_without_an_answer_are_counted_as_the_script_for_v2_does(tmp_path):
    answers = {"a": ["the Rhine"], "b": [], "c": [], "d": ["x"]}
    predictions = {"a": "Rhine river", "b": "", "c": "something", "d": "x", "e": "never asked"}
    figures, _ = compared(tmp_path, "triviaqa", asked(answers | {"not predicted": ["y"]}), predictions)
    official = score_v2(answers, predictions)
    assert {name: one["mean"] for name, one in figures.items()} == {name: official[name] for name in figures}
    assert set(figures) == {"exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"}
    assert figures["exact"]["mean"] == 50
    assert figures["f1"]["low"] < figures["f1"]["mean"] < figures["f1"]["high"]
    figures, _ = compared(tmp_path, "triviaqa", asked({"a": ["the Rhine"], "d": ["x"]}), predictions)
    assert figures["exact_match"]["mean"] == 50


@pytest.mark.parametrize(
    ("rows", "flags", "wanted"),
    [
        ([{"text": "t", "label": n / 4} for n in range(40)], (), {"label": 0.25}),
        (
            [{"text": "t", "label": n / 4 if n != 2 else "?"} for n in range(40)],
            ("--problem-type", "regression"),
            {"label": 0.25},
        ),
        ([{"text": "t", "label": ["a", "b"][: n % 3]} for n in range(40)], (), {"label": "a"}),
        (
            [{"tokens": ["x", "y"], "labels": ["O", f"B-{n % 2}"]} for n in range(40)],
            (),
            {"tokens": ["x", "y"], "labels": ["O", "B-1"], "sentences": [2]},
        ),
    ],
)
def test_what_is_right_in_a_test_split_is_read_from_the_data(tmp_path, rows, flags, wanted):
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps({"id": str(n), **row}) for n, row in enumerate(rows)))
    found = guess(str(tmp_path / "data.jsonl"), flags)
    corpus = found.corpus()
    golds = [
        evaluation._gold(SimpleNamespace(task=found.purpose.task, corpus=corpus), tmp_path, s) for s in corpus.splits
    ]
    assert len(golds) == 3
    assert all(golds)
    assert {name: gold for one in golds for name, gold in one.items()}["1"] == wanted

"""What predictions are worth: the scorers' own figures, of the examples that both sides have, for every task."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq_poolingformer.preprocess.guess import guess

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.cli.finetune import evaluation
from fairseq_poolingformer.cli.finetune.choices import NOT_TRAINED
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.results import as_text
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.presets.squad import score_v2
from fairseq_poolingformer.tasks.shared.estimates import bootstrap_means
from tests.tasks.released_files import HOTPOTQA_QUESTIONS, hotpotqa_folder


class Scorer:
    """Runs ``poolingformer score`` in this process."""

    def __init__(self):
        self.lines = []

    def run(self, program, command, *words, output, take=None):
        self.lines.append([program, command, *map(str, words)])
        if score.main([str(word) for word in words]):
            raise ValueError("it failed")


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
    assert "2 more were left out or rejected before" in text


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
    figures, count = compared(tmp_path, "triviaqa", asked(answers | {"not predicted": ["y"]}), predictions)
    official = score_v2(answers, predictions)
    assert {name: one["mean"] for name, one in figures.items()} == {name: official[name] for name in figures}
    assert set(figures) == {"exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"}
    assert (count, figures["exact"]["mean"]) == (4, 50)
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


class Predictor(Scorer):
    """Writes predictions that are given instead of a model's."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def run(self, program, command, *words, output="", take=None):
        if command == "predict":
            words[words.index("--output") + 1].write_text(self.text)
        else:
            super().run(program, command, *words, output=output)


def evaluated(folder, data, text):
    found, how = Data(str(data), [], None), {"device": "cpu", "precision": "fp32"}
    (folder / "checkpoints").mkdir(parents=True)
    commands = Predictor(text)
    return evaluation.evaluate(commands, found, data, folder, how), commands.lines


def test_a_data_folder_is_scored_on_the_released_files_that_it_was_made_of(tmp_path):
    data = hotpotqa_folder(tmp_path, "--sentencepiece-train", "320", "--limit-valid", "2")
    release = tmp_path / "hotpot.json"
    right = {one["_id"]: one["answer"] for one in HOTPOTQA_QUESTIONS}
    names = (data / "valid.id.txt").read_text().split()
    text = json.dumps({"answer": {name: right[name] for name in names}, "sp": {}})
    result, commands = evaluated(tmp_path / "run", data, text)
    assert (result["split"], result["examples"], result["without_prediction"]) == ("valid", 2, len(right) - 2)
    assert result["figures"]["em"] == {"mean": 100, "low": 100, "high": 100}
    assert commands[0][commands[0].index("--gold") + 1] == str(release)
    release.write_text(release.read_text().replace("yes", "no"))
    result, commands = evaluated(tmp_path / "other", data, text)
    assert (result["figures"], commands) == ({}, [])
    assert "score --task hotpotqa other/valid.predictions --gold hotpot.json compares" in as_text(result)


def test_a_test_file_without_answers_is_predicted_and_the_validation_split_is_scored(tmp_path, capsys):
    test = tmp_path / "test.json"
    test.write_text(json.dumps([{k: v for k, v in HOTPOTQA_QUESTIONS[0].items() if k != "answer"} | {"_id": "t"}]))
    data = hotpotqa_folder(tmp_path, "--sentencepiece-train", "320", "--test", str(test))
    predictions = {"answer": {one["_id"]: one["answer"] for one in HOTPOTQA_QUESTIONS}, "sp": {}}
    result, _ = evaluated(tmp_path / "run", data, json.dumps(predictions))
    assert (result["split"], result["examples"]) == ("valid", 3)
    assert (result["figures"]["em"]["mean"], result["figures"]["sp_em"]["mean"]) == (100, 0)
    assert "test is not scored: " in capsys.readouterr().out


def test_questions_about_pages_have_the_f1_of_the_best_threshold():
    best = {"f1": 0.5, "precision": 0.25, "recall": 1.0}
    read = {"kind": "natural_questions", "official": {}, "all": {kind: {"best": best} for kind in ("long", "short")}}
    figures = evaluation.figures_of(read, "question_answering", "question_answering")
    assert figures["short_f1"] == {"mean": 50}
    assert len(figures) == 6
    figures = evaluation.figures_of(
        {**read, "official": {"average": {"avg_passage_f1": 0.75}}}, "question_answering", "question_answering"
    )
    assert figures == {"avg_passage_f1": {"mean": 75}}


def test_every_task_that_is_trained_has_figures():
    """Those of fairseq's own package: what is right is known by labels, by texts, or by the released files."""
    for name, task in registry.tasks().items():
        if name not in NOT_TRAINED:
            assert task.figures
            assert score.parser_of(name)


def test_figures_of_a_preset_have_their_intervals_and_no_lengths():
    figures = {"rouge1": 40.5, "mean_prediction_length_characters": 99.5, "num_predicted": 3}
    read = {"kind": "qmsum", "figures": figures, "intervals": {"qmsum": {"rouge1": [39.0, 42.0]}}}
    found = evaluation.figures_of(read, "long_summarization", "qmsum")
    assert found == {"rouge1": {"mean": 40.5, "low": 39.0, "high": 42.0}}

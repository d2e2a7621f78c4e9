"""SQuAD's figures by hand, and their command line; test_official_squad.py has the official scripts."""

import json

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.triviaqa import squad


def released(gold, **more):
    questions = [{"id": name, "answers": [{"text": text} for text in texts], **more} for name, texts in gold.items()]
    return {"version": "v", "data": [{"title": "T", "paragraphs": [{"context": "c", "qas": questions}]}]}


def test_v1_counts_questions_without_a_prediction():
    gold = {"a": ["The Cat", "dog"], "b": ["two cats"], "c": ["x"], "d": ["the"]}
    found = squad.score_v1(gold, {"a": "cat.", "b": "cats", "d": "an", "z": "x"})
    assert found == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 4)}  # of no words, only the former


def test_v2_and_its_thresholds():
    """Of four questions two have no answer; the model is sure of the wrong one of each."""
    gold = {"a": ["cat"], "b": ["two cats"], "c": [], "d": []}
    predictions = {"a": "cat", "b": "cats", "c": "", "d": "dog"}
    chances = {"a": 0.1, "c": 0.15, "d": 0.2, "b": 0.3}
    half = 2 / 3
    assert squad.score_v2(gold, predictions) == {
        **{"exact": 50.0, "f1": pytest.approx(100 * (2 + half) / 4), "total": 4},
        **{"HasAns_exact": 50.0, "HasAns_f1": pytest.approx(100 * (1 + half) / 2), "HasAns_total": 2},
        **{"NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2},
    }
    found = squad.score_v2(gold, predictions, chances, threshold=0.1)
    assert (found["exact"], found["HasAns_exact"], found["NoAns_exact"]) == (75.0, 50.0, 100.0)
    # no answer to any: 2; up to a: 3; up to c, which stays right: 3; up to d: 2; up to b: 2 and 2/3
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, 0.1)
    assert (found["best_f1"], found["best_f1_thresh"]) == (75.0, 0.1)
    with pytest.raises(ValueError, match="1 questions have no probability in --na-prob-file, such as 'd'"):
        squad.score_v2(gold, predictions, {"a": 1, "b": 1, "c": 1})


@pytest.fixture
def files(tmp_path):
    def write(**contents):
        for name, content in contents.items():
            (tmp_path / name).write_text(json.dumps(content))
        return [str(tmp_path / name) for name in contents]

    return write


def test_the_command_says_how_many_questions_have_no_prediction(files, capsys, tmp_path):
    gold, predictions = files(gold=released({"a": ["cat"], "b": ["dog"]}), predictions={"a": "The cat"})
    assert score.main(["--task", "squad", predictions, "--gold", gold, "--json", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == "exact_match 50.00 f1 50.00 examples 2 without_prediction 1"
    expected = {"kind": "squad", "exact_match": 50.0, "f1": 50.0, "examples": 2, "without_prediction": 1}
    assert json.loads((tmp_path / "out").read_text()) == expected


def test_the_command_with_thresholds(files, capsys):
    gold, predictions, chances = files(
        gold=released({"a": ["cat"], "b": []}), predictions={"a": "cat", "b": "x"}, na={"a": 0.25, "b": 0.6}
    )
    command = ["--task", "squad", predictions, "--gold", gold, "--na-prob-file", chances]
    assert score.main([*command, "--na-prob-thresh", "0.5"]) == 0
    out = capsys.readouterr().out.split("\n")
    assert any(line.split() == ["exact", "100.00"] for line in out)
    assert any(line.split() == ["best_exact_thresh", "0.2500"] for line in out)


@pytest.mark.parametrize("threshold", ["nan", "inf", "-inf", "half"])
def test_a_threshold_is_a_finite_number(files, capsys, threshold):
    gold, predictions = files(gold=released({"a": []}), predictions={"a": ""})
    with pytest.raises(SystemExit):
        score.main(["--task", "squad", predictions, "--gold", gold, f"--na-prob-thresh={threshold}"])
    assert f"--na-prob-thresh: must be a finite number, got '{threshold}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gold", "predictions", "more", "message"),
    [
        (released({"a": ["x"], "b": []}), {"a": "x"}, {}, "1 of 2 ids have no prediction, such as 'b'"),
        (released({"a": ["x"]}), {"b": "x"}, {}, "no question of the gold data has a prediction; are they of another"),
        (released({"a": ["x"]}), {"a": "x"}, {"a": 0.5}, "--na-prob-file: all questions of"),
        (released({"a": []}), {"a": "x"}, {"a": "high"}, "'a' must be a number, is 'high'"),
        ({"data": [{"paragraphs": [{"qas": [{"id": 3}]}]}]}, {"a": "x"}, {}, "question ?: 'id' must be a string"),
        ({"data": [{"paragraphs": []}]}, {"a": "x"}, {}, "no questions in it"),
    ],
)
def test_errors_for_people(files, capsys, gold, predictions, more, message):
    gold, predictions, chances = files(gold=gold, predictions=predictions, chances=more)
    arguments = ["--na-prob-file", chances] if more else []
    assert score.main(["--task", "squad", predictions, "--gold", gold, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_probability_at_the_threshold_is_an_answer():
    """As in the script: no answer is what lies above it."""
    gold, predictions = {"a": ["cat"], "b": []}, {"a": "cat", "b": ""}
    assert squad.score_v2(gold, predictions, {"a": 0.5, "b": 0.5}, threshold=0.5)["HasAns_exact"] == 100
    assert squad.score_v2(gold, predictions, {"a": 0.5, "b": 0.5}, threshold=0.499)["HasAns_exact"] == 0

import json

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.triviaqa import squad


def released(gold, **more):
    questions = [{"id": name, "answers": [{"text": text} for text in texts], **more} for name, texts in gold.items()]
    return {"version": "v", "data": [{"title": "T", "paragraphs": [{"context": "c", "qas": questions}]}]}


def test_v1_counts_questions_without_a_prediction():
    gold = {"a": ["The Cat", "dog"], "b": ["two cats"], "c": ["x"], "d": ["the"]}
    figures = squad.score_v1(gold, {"a": "cat.", "b": "cats", "d": "an", "z": "x"})
    assert figures == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 4)}  # of no words, only the former


def test_v2_of_four_questions_of_which_two_have_no_answer():
    gold = {"a": ["cat"], "b": ["two cats"], "c": [], "d": []}
    predictions = {"a": "cat", "b": "cats", "c": "", "d": "dog"}
    half = 2 / 3
    assert squad.score_v2(gold, predictions) == {
        **{"exact": 50.0, "f1": pytest.approx(100 * (2 + half) / 4), "total": 4},
        **{"HasAns_exact": 50.0, "HasAns_f1": pytest.approx(100 * (1 + half) / 2), "HasAns_total": 2},
        **{"NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2},
    }


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


@pytest.mark.parametrize(
    ("gold", "predictions", "message"),
    [
        (released({"a": ["x"], "b": []}), {"a": "x"}, "1 of 2 ids have no prediction, such as 'b'"),
        (released({"a": ["x"]}), {"b": "x"}, "no question of the gold data has a prediction; are they of another"),
        ({"data": [{"paragraphs": [{"qas": [{"id": 3}]}]}]}, {"a": "x"}, "question ?: 'id' must be a string"),
        ({"data": [{"paragraphs": []}]}, {"a": "x"}, "no questions in it"),
    ],
)
def test_errors_for_people(files, capsys, gold, predictions, message):
    gold, predictions = files(gold=gold, predictions=predictions)
    assert score.main(["--task", "squad", predictions, "--gold", gold]) == 1
    assert message in capsys.readouterr().err

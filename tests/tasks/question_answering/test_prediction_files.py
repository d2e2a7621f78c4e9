"""Files of predictions: the official formats, and errors that say where."""

import gzip
import json

import pytest

from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    NaturalQuestionsPrediction,
    Span,
    TydiqaPrediction,
    read_predictions,
    write_predictions,
)

NATURAL_QUESTIONS = [
    NaturalQuestionsPrediction(-7, Span(10, 90, 1, 9), 13.5, (Span(20, 30, 2, 3), Span(40, 50, 4, 5)), 2.25),
    NaturalQuestionsPrediction(2**62 + 1, Span(start_token=0, end_token=3), -1.0, (), float("-inf"), "YES"),
]
TYDIQA = [
    TydiqaPrediction(3, "thai", 2, 1.5, Span(814, 852), 0.5),
    TydiqaPrediction(-4, "finnish", -1, 0.0, NO_SPAN, -3.0, "NO"),
]
# the example of nq_eval.py's description
OFFICIAL_NATURAL_QUESTIONS = {
    "example_id": -2226525965842375672,
    "long_answer": {"start_byte": 62657, "end_byte": 64776, "start_token": 391, "end_token": 604},
    "long_answer_score": 13.5,
    "short_answers": [{"start_byte": 64206, "end_byte": 64280, "start_token": 555, "end_token": 560}],
    "short_answers_score": 26.4,
    "yes_no_answer": "NONE",
}
OFFICIAL_TYDIQA = {
    "example_id": -2226525965842375672,
    "passage_answer_index": 2,
    "passage_answer_score": 13.5,
    "minimal_answer": {"start_byte_offset": 64206, "end_byte_offset": 64280},
    "minimal_answer_score": 26.4,
    "yes_no_answer": "NONE",
    "language": "korean",
}


@pytest.mark.parametrize(
    ("kind", "predictions"), [("natural_questions", NATURAL_QUESTIONS), ("tydiqa", TYDIQA), ("tydiqa", TYDIQA[:1])]
)
@pytest.mark.parametrize("name", ["predictions.json", "predictions.json.gz"])
def test_what_is_written_is_read(tmp_path, kind, predictions, name):
    path = tmp_path / name
    assert write_predictions(path, kind, iter(predictions)) == len(predictions)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert read_predictions(path) == (kind, {prediction.example_id: prediction for prediction in predictions})


def test_official_objects(tmp_path):
    long_answer, short_answer = Span(62657, 64776, 391, 604), Span(64206, 64280, 555, 560)
    expected = NaturalQuestionsPrediction(-2226525965842375672, long_answer, 13.5, (short_answer,), 26.4)
    assert NaturalQuestionsPrediction.from_json(OFFICIAL_NATURAL_QUESTIONS) == expected
    assert expected.to_json() == OFFICIAL_NATURAL_QUESTIONS
    expected = TydiqaPrediction(-2226525965842375672, "korean", 2, 13.5, Span(64206, 64280), 26.4)
    assert TydiqaPrediction.from_json(OFFICIAL_TYDIQA) == expected
    assert expected.to_json() == OFFICIAL_TYDIQA
    for indent in (None, 2):
        path = tmp_path / f"indent{indent}"
        path.write_text(json.dumps({"predictions": [OFFICIAL_NATURAL_QUESTIONS]}, indent=indent), encoding="utf-8")
        assert read_predictions(path)[0] == "natural_questions"


def test_what_the_official_readers_take_is_taken(tmp_path):
    """Other keys, nested ones before the list as well; scores as strings; keys of the other corpus beside one's own."""
    path = tmp_path / "predictions.json"
    prediction = {**OFFICIAL_NATURAL_QUESTIONS, "minimal_answer": {}, "long_answer_score": " 13.5 "}
    path.write_text("\n" + json.dumps({"made": {"by": ["x"]}, "predictions": [prediction]}, indent=1), encoding="utf-8")
    expected = NaturalQuestionsPrediction.from_json(OFFICIAL_NATURAL_QUESTIONS)
    assert read_predictions(path) == ("natural_questions", {expected.example_id: expected})
    path.write_text(_line(minimal_answer_score="26.4", passage_answer_score="-1e400", long_answer={}), encoding="utf-8")
    ((_, found),) = read_predictions(path)[1].items()
    assert (found.minimal_answer_score, found.passage_answer_score) == (26.4, float("-inf"))


def test_ids_keep_their_type(tmp_path):
    path = tmp_path / "predictions.json"
    predictions = [TydiqaPrediction(example_id, "thai") for example_id in (7, "7", "ä\ud800")]
    write_predictions(path, "tydiqa", predictions)
    assert [(key, type(key)) for key in read_predictions(path)[1]] == [(7, int), ("7", str), ("ä\ud800", str)]


def test_an_unfinished_file_keeps_the_good_one(tmp_path):
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, "tydiqa", TYDIQA)

    def broken():
        yield TYDIQA[0]
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError):
        write_predictions(path, "tydiqa", broken())
    assert len(read_predictions(path)[1]) == 2


def _line(**changes: object) -> str:
    record = {**OFFICIAL_TYDIQA, **changes}
    return json.dumps({key: value for key, value in record.items() if value != "left out"})


def _object(**changes: object) -> str:
    second = {key: value for key, value in {**OFFICIAL_NATURAL_QUESTIONS, **changes}.items() if value != "left out"}
    return json.dumps({"predictions": [{**OFFICIAL_NATURAL_QUESTIONS, "example_id": 1}, second]}, indent=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no predictions"),
        ('{"predictions": []}', "no predictions"),
        ('{"predictions": {}}', "'predictions' must be a list"),
        ('{"predictions": [\n{"example_id": 1},\n{"exam', "line 3: not JSON"),
        (_line() + "\n{", "line 2: not JSON"),
        (_line() + "\n\n[]", "line 3: a prediction must be a JSON object"),
        (_line() + "\n" + _line(), "line 2: example -2226525965842375672 has a prediction already (line 1)"),
        (_line() + "\n" + json.dumps(OFFICIAL_NATURAL_QUESTIONS), "line 2: 'long_answer' belongs to Natural Questions"),
        (_line() + '\n{"predictions": []}', "line 2: 'predictions' belongs to Natural Questions"),
        (_line(language="left out"), "line 1: 'language' must be a string, is missing"),
        (_line(minimal_answer_score="high"), "'minimal_answer_score' must be a number, is 'high'"),
        (_line(minimal_answer_score=float("nan")), "'minimal_answer_score' must be a number, is nan"),
        (_line(passage_answer_score="left out"), "'passage_answer_score' must be a number, is missing"),
        (_line(passage_answer_index="2"), "'passage_answer_index' must be an integer, is '2'"),
        (_line(example_id=1.5), "'example_id' must be an integer or a string, is 1.5"),
        (
            _line(minimal_answer_score=10**400),
            "'minimal_answer_score' must be a number that a float can hold, is 1000",
        ),
        (_line(minimal_answer_score="nan"), "'minimal_answer_score' must be a number, is 'nan'"),
        (_line().replace("26.4", "1" * 5000), "a number has thousands of digits"),
        (_line() + "\n" + "[" * 100_000, "line 2: objects or lists are nested too deeply"),
        ('{"predictions": ' + "[" * 100_000, "predictions.json: objects or lists are nested too deeply"),
        (_line(yes_no_answer="MAYBE"), "'yes_no_answer' must be YES, NO or NONE, is 'MAYBE'"),
        (_line(yes_no_answer="yes"), "yes_no_answer is YES, so minimal_answer must be none"),
        (_line(minimal_answer={"start_byte_offset": 5}), "'end_byte_offset' must be an integer, is missing"),
        (_line(minimal_answer={"start_byte_offset": 5, "end_byte_offset": 4}), "start 5 is after end 4"),
        (_line(minimal_answer={"start_byte_offset": -1, "end_byte_offset": 4}), "no answer is -1 and -1"),
        (_object(long_answer={"start_token": 4, "end_token": 4}), "prediction 2: long_answer: start and end are equal"),
        (_object(long_answer={"start_byte": 4, "end_byte": 3}), "prediction 2: long_answer: start 4 is after end 3"),
        (_object(short_answers=[[1, 2]]), "prediction 2: short_answers must be a JSON object, is [1, 2]"),
        (_object(short_answers=None), "prediction 2: 'short_answers' must be a list, is None"),
        (_object(yes_no_answer="no"), "prediction 2: yes_no_answer is NO, so short_answers must be none"),
        (
            _object(long_answer_score="left out", minimal_answer={}),
            "prediction 2: 'minimal_answer' belongs to TyDi QA",
        ),
        (_object(example_id=1), "prediction 2: example 1 has a prediction already (prediction 1)"),
        (_object(short_answers_score="left out"), "prediction 2: 'short_answers_score' must be a number, is missing"),
        (_object() + "\n" + _line(), "more text after the object with 'predictions'"),
    ],
)
def test_errors_say_where(tmp_path, text, message):
    path = tmp_path / "predictions.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        read_predictions(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_damaged_bytes_are_named(tmp_path):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(_line().encode() + b"\n\xff\n")
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        read_predictions(path)
    path = tmp_path / "predictions.jsonl.gz"
    path.write_bytes(gzip.compress(_line().encode())[:-9])
    with pytest.raises(ValueError, match="damaged gzip file"):
        read_predictions(path)

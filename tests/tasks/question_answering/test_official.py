"""The official files of people's answers and of predictions, and errors that say where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    GoldExample,
    NaturalQuestionsAnnotation,
    NaturalQuestionsPrediction,
    Span,
    TydiqaAnnotation,
    TydiqaPrediction,
    read_gold,
    read_predictions,
    write_predictions,
)

NULL = {"start_byte": -1, "end_byte": -1, "start_token": -1, "end_token": -1}
NATURAL_QUESTIONS = {
    "example_id": 5,
    "document_html": "<p>Größe</p>",
    "annotations": [
        {
            "long_answer": {"start_byte": 0, "end_byte": 14, "start_token": 0, "end_token": 3, "candidate_index": 0},
            "short_answers": [{"start_byte": 3, "end_byte": 10, "start_token": 1, "end_token": 2}],
            "yes_no_answer": "NONE",
        },
        {"long_answer": {**NULL, "candidate_index": -1}, "short_answers": [], "yes_no_answer": "Yes"},
    ],
}
SIMPLIFIED = {
    "example_id": 6,
    "document_text": "<P> Größe </P>",
    "annotations": [
        {
            "long_answer": {"start_token": 0, "end_token": 3, "candidate_index": 0},
            "short_answers": [{"start_token": 1, "end_token": 2}],
            "yes_no_answer": "NONE",
        }
    ],
}
TYDIQA = {
    "example_id": 7,
    "language": "thai",
    "annotations": [
        {
            "passage_answer": {"candidate_index": 2},
            "minimal_answer": {"plaintext_start_byte": 814, "plaintext_end_byte": 852},
            "yes_no_answer": "NONE",
        },
        {
            "passage_answer": {"candidate_index": -1},
            "minimal_answer": {"plaintext_start_byte": -1, "plaintext_end_byte": -1},
            "yes_no_answer": "NO",
        },
    ],
}


def _write(path: Path, *records: dict) -> Path:
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_natural_questions_original_and_simplified(tmp_path, workers):
    paths = [_write(tmp_path / "original.jsonl.gz", NATURAL_QUESTIONS), _write(tmp_path / "simple.jsonl", SIMPLIFIED)]
    long_answer, short_answer = Span(0, 14, 0, 3), Span(3, 10, 1, 2)
    simplified = NaturalQuestionsAnnotation(Span(-1, -1, 0, 3), (Span(-1, -1, 1, 2),), "NONE")
    annotations = (
        NaturalQuestionsAnnotation(long_answer, (short_answer,), "NONE"),
        NaturalQuestionsAnnotation(NO_SPAN, (), "YES"),
    )
    expected = {5: GoldExample(5, annotations), 6: GoldExample(6, (simplified,))}
    assert read_gold(paths, workers) == ("natural_questions", expected)


def test_tydiqa(tmp_path):
    annotations = (TydiqaAnnotation(2, Span(814, 852), "NONE"), TydiqaAnnotation(-1, NO_SPAN, "NO"))
    path = _write(tmp_path / "dev.jsonl", TYDIQA)
    assert read_gold([path]) == ("tydiqa", {7: GoldExample(7, annotations, "thai")})


def _changed(record: dict, **changes: object) -> dict:
    """The record with keys changed in its first annotation."""
    return {**record, "annotations": [{**record["annotations"][0], **changes}]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no examples"),
        ([TYDIQA, TYDIQA], "line 2: example 7 comes a second time"),
        ([{"example_id": 1}], "no 'annotations': is this gold data?"),
        ([{"example_id": 1, "annotations": [{}]}], "an annotation must have 'long_answer'"),
        ([_changed(TYDIQA, yes_no_answer="MAYBE")], "'yes_no_answer' must be YES, NO or NONE, is 'MAYBE'"),
        ([_changed(SIMPLIFIED, long_answer={"start_token": 3, "end_token": 2})], "long_answer: start 3 is after end 2"),
    ],
)
def test_errors_say_where(tmp_path, lines, message):
    path = _write(tmp_path / "gold.jsonl", *lines)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        read_gold([path])
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "gold.jsonl"
    path.write_bytes(json.dumps(TYDIQA).encode() + b"\n\n{\n")
    with pytest.raises(ValueError, match="line 3: broken JSON"):
        read_gold([path])
    path.write_bytes(b'{"language": "\xff"}\n')
    with pytest.raises(ValueError, match="line 1: not UTF-8"):
        read_gold([path])
    path = _write(tmp_path / "gold.jsonl.gz", TYDIQA)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged gzip file after line"):
        read_gold([path])


def test_predictions_that_contradict_themselves():
    with pytest.raises(ValueError, match="must be none"):
        NaturalQuestionsPrediction(1, short_answers=(Span(1, 2),), yes_no_answer="YES")
    with pytest.raises(ValueError, match="long_answer_score is NaN"):
        NaturalQuestionsPrediction(1, long_answer_score=float("nan"))
    with pytest.raises(ValueError, match="one of NONE, YES, NO"):
        TydiqaPrediction(1, "thai", yes_no_answer="none")


PREDICTED_NATURAL_QUESTIONS = [
    NaturalQuestionsPrediction(-7, Span(10, 90, 1, 9), 13.5, (Span(20, 30, 2, 3), Span(40, 50, 4, 5)), 2.25),
    NaturalQuestionsPrediction(2**62 + 1, Span(start_token=0, end_token=3), -1.0, (), float("-inf"), "YES"),
]
PREDICTED_TYDIQA = [
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
    ("kind", "predictions"),
    [
        ("natural_questions", PREDICTED_NATURAL_QUESTIONS),
        ("tydiqa", PREDICTED_TYDIQA),
        ("tydiqa", PREDICTED_TYDIQA[:1]),
    ],
)
@pytest.mark.parametrize("name", ["predictions.json", "predictions.json.gz"])
def test_what_is_written_is_read(tmp_path, kind, predictions, name):
    path = tmp_path / name
    assert write_predictions(path, kind, iter(predictions)) == len(predictions)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert read_predictions(path) == (kind, {prediction.example_id: prediction for prediction in predictions})


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


def _line(**changes: object) -> str:
    record = {**OFFICIAL_TYDIQA, **changes}
    return json.dumps({key: value for key, value in record.items() if value != "left out"})


def _object(**changes: object) -> str:
    second = {key: value for key, value in {**OFFICIAL_NATURAL_QUESTIONS, **changes}.items() if value != "left out"}
    return json.dumps({"predictions": [{**OFFICIAL_NATURAL_QUESTIONS, "example_id": 1}, second]}, indent=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"predictions": []}', "no predictions"),
        ('{"predictions": [\n{"example_id": 1},\n{"exam', "line 3: not JSON"),
        (_line() + "\n" + _line(), "line 2: example -2226525965842375672 has a prediction already (line 1)"),
        (_line(passage_answer_score="left out"), "'passage_answer_score' must be a number, is missing"),
        ('{"predictions": ' + "[" * 100_000, "predictions.json: objects or lists are nested too deeply"),
        (_line(yes_no_answer="yes"), "yes_no_answer is YES, so minimal_answer must be none"),
        (_line(minimal_answer={"start_byte_offset": 5, "end_byte_offset": 4}), "start 5 is after end 4"),
        (_object(long_answer={"start_token": 4, "end_token": 4}), "prediction 2: long_answer: start and end are equal"),
    ],
)
def test_errors_of_predictions_say_where(tmp_path, text, message):
    path = tmp_path / "predictions.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        read_predictions(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)

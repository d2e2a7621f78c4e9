import bz2
import gzip
import json
import lzma
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


def span(*numbers):
    """Bytes and tokens, or tokens alone."""
    keys = ("start_byte", "end_byte", "start_token", "end_token")
    return dict(zip(keys[-len(numbers) :], numbers, strict=True))


def annotation(long_answer, candidate, *short_answers, yes_no="NONE"):
    """An annotation of Natural Questions."""
    long_answer = {**long_answer, "candidate_index": candidate}
    return {"long_answer": long_answer, "short_answers": list(short_answers), "yes_no_answer": yes_no}


def tydiqa_annotation(candidate, start, end, yes_no):
    minimal = {"plaintext_start_byte": start, "plaintext_end_byte": end}
    return {"passage_answer": {"candidate_index": candidate}, "minimal_answer": minimal, "yes_no_answer": yes_no}


NATURAL_QUESTIONS = {
    **{"example_id": 5, "document_html": "<p>Größe</p>"},
    "annotations": [
        annotation(span(0, 14, 0, 3), 0, span(3, 10, 1, 2)),
        annotation(span(-1, -1, -1, -1), -1, yes_no="Yes"),
    ],
}
SIMPLIFIED = {
    **{"example_id": 6, "document_text": "<P> Größe </P>"},
    "annotations": [annotation(span(0, 3), 0, span(1, 2))],
}
TYDIQA = {
    **{"example_id": 7, "language": "thai"},
    "annotations": [tydiqa_annotation(2, 814, 852, "NONE"), tydiqa_annotation(-1, -1, -1, "NO")],
}


def _write(path: Path, *records: dict) -> Path:
    lines = _lines(*records)
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_gold_of_every_format(tmp_path, workers):
    paths = [_write(tmp_path / "original.jsonl.gz", NATURAL_QUESTIONS), _write(tmp_path / "simple.jsonl", SIMPLIFIED)]
    annotation = NaturalQuestionsAnnotation
    simplified = annotation(Span(-1, -1, 0, 3), (Span(-1, -1, 1, 2),), "NONE")
    original = annotation(Span(0, 14, 0, 3), (Span(3, 10, 1, 2),), "NONE"), annotation(NO_SPAN, (), "YES")
    expected = {5: GoldExample(5, original), 6: GoldExample(6, (simplified,))}
    assert read_gold(paths, workers) == ("natural_questions", expected)
    tydiqa = TydiqaAnnotation(2, Span(814, 852), "NONE"), TydiqaAnnotation(-1, NO_SPAN, "NO")
    path = _write(tmp_path / "dev.jsonl", TYDIQA)
    assert read_gold([path], workers) == ("tydiqa", {7: GoldExample(7, tydiqa, "thai")})


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (NaturalQuestionsPrediction, {"short_answers": (Span(1, 2),), "yes_no_answer": "YES"}, "must be none"),
        (NaturalQuestionsPrediction, {"long_answer_score": float("nan")}, "long_answer_score is NaN"),
        (TydiqaPrediction, {"language": "thai", "yes_no_answer": "none"}, "one of NONE, YES, NO"),
    ],
)
def test_predictions_that_contradict_themselves(kind, values, message):
    with pytest.raises(ValueError, match=message):
        kind(1, **values)


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
    **{"long_answer": span(62657, 64776, 391, 604), "long_answer_score": 13.5},
    **{"short_answers": [span(64206, 64280, 555, 560)], "short_answers_score": 26.4},
    "yes_no_answer": "NONE",
}
OFFICIAL_TYDIQA = {
    **{"example_id": -2226525965842375672, "passage_answer_index": 2, "passage_answer_score": 13.5},
    **{"minimal_answer": {"start_byte_offset": 64206, "end_byte_offset": 64280}, "minimal_answer_score": 26.4},
    **{"yes_no_answer": "NONE", "language": "korean"},
}


@pytest.mark.parametrize(
    ("kind", "predictions"),
    [("natural_questions", PREDICTED_NATURAL_QUESTIONS), *(("tydiqa", PREDICTED_TYDIQA[:end]) for end in (1, 2))],
)
@pytest.mark.parametrize("suffix", ["", "gz", "bz2", "xz"])
def test_what_is_written_is_read(tmp_path, kind, predictions, suffix):
    name = f"predictions.json.{suffix}".rstrip(".")
    path = tmp_path / name
    assert write_predictions(path, kind, iter(predictions)) == len(predictions)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    first = {"": b"{" * (kind == "natural_questions"), "gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ"}
    assert path.read_bytes().startswith(first[suffix])
    assert read_predictions(path) == (kind, {prediction.example_id: prediction for prediction in predictions})


def test_what_the_official_readers_take_is_taken(tmp_path):
    """Other keys, nested ones before the list as well; scores as strings; keys of the other corpus beside one's own."""
    path = tmp_path / "predictions.json"
    prediction = {**OFFICIAL_NATURAL_QUESTIONS, "minimal_answer": {}, "long_answer_score": " 13.5 "}
    path.write_text("\n" + json.dumps({"made": {"by": ["x"]}, "predictions": [prediction]}, indent=1), encoding="utf-8")
    expected = NaturalQuestionsPrediction.from_json(OFFICIAL_NATURAL_QUESTIONS)
    assert read_predictions(path) == ("natural_questions", {expected.example_id: expected})
    path.write_text(_line(minimal_answer_score="26.4", passage_answer_score="-1e400", long_answer={}), encoding="utf-8")
    ((_, result),) = read_predictions(path)[1].items()
    assert (result.minimal_answer_score, result.passage_answer_score) == (26.4, float("-inf"))


def _changed(record: dict, **changes: object) -> dict:
    """The record with keys changed in its first annotation."""
    return {**record, "annotations": [{**record["annotations"][0], **changes}]}


def _lines(*records: dict) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def _line(**changes: object) -> str:
    record = {**OFFICIAL_TYDIQA, **changes}
    return json.dumps({key: value for key, value in record.items() if value != "left out"})


def _object(**changes: object) -> str:
    records = [{**OFFICIAL_NATURAL_QUESTIONS, "example_id": 1}, {**OFFICIAL_NATURAL_QUESTIONS, **changes}]
    return json.dumps({"predictions": records}, indent=1)


REVERSED = {"start_byte_offset": 5, "end_byte_offset": 4}


@pytest.mark.parametrize("kind", [gzip, bz2, lzma])
def test_gold_is_read_as_preprocessing_reads_it(tmp_path, kind):
    (tmp_path / "gold").write_bytes(_lines(TYDIQA))
    path = tmp_path / f"gold.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[kind] }"
    path.write_bytes(kind.compress(_lines(TYDIQA)))
    assert read_gold([path]) == read_gold([tmp_path / "gold"])
    assert read_gold([path])[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gold", b"", "no examples"),
        ("gold", _lines(TYDIQA, TYDIQA), "line 2: example 7 comes a second time"),
        ("gold", _lines({"example_id": 1}), "no 'annotations': is this gold data?"),
        ("gold", _lines({"example_id": 1, "annotations": [{}]}), "an annotation must have 'long_answer'"),
        ("gold", _lines(_changed(TYDIQA, yes_no_answer="MAYBE")), "'yes_no_answer' must be YES, NO or NONE, is 'MAY"),
        ("gold", _lines(_changed(SIMPLIFIED, long_answer=span(3, 2))), "long_answer: start 3 is after end 2"),
        ("gold", _lines(TYDIQA) + b"\n{\n", "line 3: broken JSON"),
        ("gold", b'{"language": "\xff"}\n', "line 1: not UTF-8"),
        ("gold.gz", gzip.compress(_lines(TYDIQA))[:-9], "damaged gzip file"),
        ("gold.bz2", _lines(TYDIQA), "damaged bzip2 file"),
        ("gold.xz", lzma.compress(_lines(TYDIQA))[:-9], "damaged xz file"),
        ("predictions", '{"predictions": []}', "no predictions"),
        ("predictions", '{"predictions": [\n{"example_id": 1},\n{"exam', "line 3: not JSON"),
        ("predictions", _line() + "\n" + _line(), "example -2226525965842375672 has a prediction already (line 1)"),
        ("predictions", _line(passage_answer_score="left out"), "'passage_answer_score' must be a number, is missing"),
        ("predictions", '{"predictions": ' + "[" * 100_000, "predictions: objects or lists are nested too deeply"),
        ("predictions", _line(yes_no_answer="yes"), "yes_no_answer is YES, so minimal_answer must be none"),
        ("predictions", _line(minimal_answer=REVERSED), "start 5 is after end 4"),
        ("predictions", _object(long_answer=span(4, 4)), "prediction 2: long_answer: start and end are equal"),
    ],
)
def test_errors_say_where(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        read_predictions(path) if name == "predictions" else read_gold([path])
    assert str(path) in str(error.value)
    assert message in str(error.value)

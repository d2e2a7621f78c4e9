"""Gold data of both corpora, as it is released, and errors that say where."""

import gzip
import json
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    GoldExample,
    NaturalQuestionsAnnotation,
    Span,
    TydiqaAnnotation,
    TydiqaPrediction,
    read_gold,
)
from fairseq_poolingformer.tasks.question_answering.scoring import pair_report, score_tydiqa

REAL = Path(__file__).parents[4] / "shared" / "data"
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
        ([TYDIQA, SIMPLIFIED], "line 2: natural_questions among tydiqa"),
        ([[1, 2]], "line 1: wrong type: the line is a list, not an object"),
        ([{"example_id": 1}], "no 'annotations': is this gold data?"),
        ([{"predictions": []}], "no 'annotations': is this gold data?"),
        ([{"example_id": 1, "annotations": []}], "example 1 has an empty list of annotations"),
        ([{"example_id": 1, "annotations": [{}]}], "an annotation must have 'long_answer'"),
        ([{**TYDIQA, "language": None}], "'language' must be a string"),
        ([{**TYDIQA, "example_id": None}], "'example_id' must be an integer"),
        ([_changed(TYDIQA, yes_no_answer="MAYBE")], "'yes_no_answer' must be YES, NO or NONE, is 'MAYBE'"),
        ([_changed(TYDIQA, passage_answer={})], "'candidate_index' must be an integer, is missing"),
        ([_changed(TYDIQA, minimal_answer=None)], "minimal_answer must be a JSON object, is None"),
        ([_changed(SIMPLIFIED, long_answer={"start_token": 3, "end_token": 2})], "long_answer: start 3 is after end 2"),
        (
            [_changed(SIMPLIFIED, short_answers=[{"start_token": 3}])],
            "short_answers[0]: start 3, end -1: no answer",
        ),
        ([_changed(SIMPLIFIED, short_answers=None)], "'short_answers' must be a list, is None"),
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


def test_real_data_are_read():
    if not REAL.is_dir():
        pytest.skip("needs the shared data")
    names = ["simplified_train_sample.jsonl", "simplified_dev_sample.jsonl", "toy_example_original_format.jsonl"]
    kind, gold = read_gold([REAL / "nq" / name for name in names])
    assert kind == "natural_questions"
    assert gold[5328212470870865242].annotations[0].short_answers == (Span(-1, -1, 213, 215),)
    assert gold[797803103760793766].annotations[0].long_answer == Span(32, 106, 5, 22)
    kind, gold = read_gold([REAL / "tydiqa" / "tiny_dev.jsonl.gz"])
    assert (kind, len(gold), len({example.language for example in gold.values()})) == ("tydiqa", 11, 11)


def test_answers_of_an_annotator_of_real_data():
    """Of the eleven examples three have two passages or more and three two minimal answers or more."""
    if not REAL.is_dir():
        pytest.skip("needs the shared data")
    gold = read_gold([REAL / "tydiqa" / "tiny_dev.jsonl.gz"])[1]
    predictions = {}
    for key, example in gold.items():
        answers = next((one for one in example.annotations if one.passage_answer_index >= 0), example.annotations[0])
        predictions[key] = TydiqaPrediction(
            key, example.language, answers.passage_answer_index, 1.0, answers.minimal_answer, 1.0, answers.yes_no_answer
        )
    report = pair_report(score_tydiqa(gold, predictions))
    assert (report.long.gold, report.long.predicted, report.short.gold, report.short.predicted) == (3, 6, 3, 6)
    assert (report.long.best.f1, report.short.best.f1) == (pytest.approx(2 / 3), pytest.approx(2 / 3))

"""``poolingformer-score --task question_answering``: what it prints, what it refuses."""

import json
from pathlib import Path

import pytest

from fairseq_poolingformer.cli import score
from tests.tasks.question_answering.random_answers import natural_questions_set, write_set

REAL = Path(__file__).parents[4] / "shared" / "data"


def run(capsys, *argv: object) -> tuple[int, str, str]:
    status = score.main(["--task", "question_answering", *map(str, argv)])
    return status, *capsys.readouterr()


def _gold(example_id: int = 1, annotators: int = 2, language: str = "thai", unit: str = "") -> dict:
    """An example of TyDi QA, or with a unit of Natural Questions, all of whose annotators agree."""
    if unit:
        span = {f"start_{unit}": 3, f"end_{unit}": 9}
        annotation = {"long_answer": span, "short_answers": [span], "yes_no_answer": "NONE"}
        return {"example_id": example_id, "annotations": [annotation] * annotators}
    minimal = {"plaintext_start_byte": 3, "plaintext_end_byte": 9}
    annotation = {"passage_answer": {"candidate_index": 4}, "minimal_answer": minimal, "yes_no_answer": "NONE"}
    return {"example_id": example_id, "language": language, "annotations": [annotation] * annotators}


def _prediction(example_id: int = 1, language: str = "thai", unit: str = "", score: float = 1.5) -> dict:
    """The answers of :func:`_gold`."""
    if unit:
        span = {f"start_{unit}": 3, f"end_{unit}": 9}
        scores = {"long_answer_score": score, "short_answers_score": score}
        return {"example_id": example_id, "long_answer": span, "short_answers": [span], **scores}
    minimal = {"start_byte_offset": 3, "end_byte_offset": 9}
    scores = {"passage_answer_score": score, "minimal_answer_score": score}
    return {
        "example_id": example_id,
        "language": language,
        "passage_answer_index": 4,
        "minimal_answer": minimal,
        **scores,
    }


def _cells(out: str, name: str) -> list[list[str]]:
    """The cells of each row of that name."""
    return [line.removeprefix(name).split() for line in out.splitlines() if line.startswith(name)]


def test_natural_questions(tmp_path, capsys):
    gold = [_gold(1, unit="token"), _gold(2, unit="token"), _gold(3, 1, unit="token")]
    predictions = [_prediction(1, unit="token", score=9), {**_prediction(2, unit="token"), "short_answers": []}]
    files = write_set(tmp_path, gold, {"predictions": [*predictions, _prediction(3, unit="token", score=0.25)]})
    report = tmp_path / "report.json"
    arguments = ["--gold", files[0], "--predictions", files[1], "--json", report, "--thresholds", 1.5, 0]
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert "Natural Questions: 3 examples, 3 predictions" in out
    # both long answers are right, the third has no gold answer; one short answer of two is found
    long_answer = "3 2 3 100.00 100.00 100.00 1.5 80.00 66.67 100.00 100.00 100.00 100.00 100.00 100.00 100.00"
    short_answer = "3 2 2 66.67 100.00 50.00 9 50.00 50.00 50.00 50.00 50.00 50.00 50.00 50.00 50.00"
    assert _cells(out, "long answer") == [long_answer.split()]
    assert _cells(out, "short answer") == [short_answer.split()]
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["official"]["short-best-threshold-f1"] == pytest.approx(2 / 3)
    assert found["official"]["long-recall-at-precision>=0.9"] == 1
    assert found["all"]["long"]["at_threshold"] == {"f1": 1, "precision": 1, "recall": 1, "threshold": 1.5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gold.jsonl.gz", "predictions.json", "report.json"]


def test_tydiqa_languages_and_what_is_missing(tmp_path, capsys):
    gold = [_gold(1, language="english"), _gold(2), _gold(3), _gold(4, language="korean"), _gold(5)]
    predictions = [_prediction(1, "english"), _prediction(2), _prediction(5, "english"), _prediction(6)]
    files = write_set(tmp_path, gold, [*predictions, _prediction(7, "klingon")])
    status, out, _ = run(capsys, "--gold", files[0], "--predictions", files[1], "--per-language")
    assert status == 0
    assert [row[:6] for row in _cells(out, "thai")] == [["3", "3", "1", "50.00", "100.00", "33.33"]] * 2
    assert [row[3] for row in _cells(out, "average without English")] == ["50.00"] * 2
    assert [row[3] for row in _cells(out, "average with English")] == ["75.00"] * 2
    assert len(_cells(out, "klingon")) == 2


def test_one_annotation_each(tmp_path, capsys):
    files = write_set(tmp_path, [_gold(annotators=1)], [_prediction()])
    status, out, _ = run(capsys, "--gold", files[0], "--predictions", files[1])
    assert (status, _cells(out, "all examples")[0][3]) == (0, "0.00")
    status, out, err = run(capsys, "--gold", files[0], "--predictions", files[1], "--min-annotations", 1)
    assert (status, _cells(out, "all examples")[0][3], err) == (0, "100.00", "")
    assert _cells(out, "average without English")[0][3] == "100.00"


OF_BYTES = {"predictions": [_prediction(unit="byte")]}


@pytest.mark.parametrize(
    ("gold", "predictions", "options", "message"),
    [
        (_gold(), OF_BYTES, [], "in the format of Natural Questions, but the gold"),
        (_gold(), [_prediction(2)], [], "for any example of the gold data: are they of another split?"),
        (_gold(unit="byte"), OF_BYTES, ["--per-language"], "is for TyDi QA"),
    ],
)
def test_errors_for_people(tmp_path, capsys, gold, predictions, options, message):
    files = write_set(tmp_path, [gold], predictions)
    status, out, err = run(capsys, "--gold", files[0], "--predictions", files[1], *options)
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_shards_of_a_run_are_scored_together_and_each_once(tmp_path, capsys):
    gold = [_gold(number, unit="token") for number in range(4)]
    predictions = [_prediction(number, unit="token", score=number) for number in range(4)]
    files = write_set(tmp_path / "whole", gold, {"predictions": predictions})
    parts = [
        write_set(tmp_path / name, gold, {"predictions": predictions[slice(*place)]})
        for name, place in (("a", (0, 3)), ("b", (3, 4)), ("c", (2, 4)))
    ]
    a, b, c = (part[1] for part in parts)
    assert run(capsys, a, b, "--gold", files[0]) == run(capsys, files[1], "--gold", files[0])
    status, _, err = run(capsys, a, c, "--gold", files[0])
    assert (status, "example 2 is in another file as well; give each shard once" in err) == (1, True)
    with pytest.raises(SystemExit):
        run(capsys, "--gold", files[0])
    assert "give a file of predictions, or those of all shards" in capsys.readouterr().err


def test_several_gold_files_and_workers(tmp_path, capsys):
    gold, predictions = natural_questions_set(3, 40)
    write_set(tmp_path / "whole", gold, predictions)
    files = write_set(tmp_path / "first", gold[:15], predictions)
    write_set(tmp_path / "second", gold[15:], predictions)
    _, whole, _ = run(capsys, "--gold", tmp_path / "whole" / "gold.jsonl.gz", "--predictions", files[1])
    parts = [tmp_path / name / "gold.jsonl.gz" for name in ("first", "second")]
    status, out, _ = run(capsys, "--gold", *parts, "--predictions", files[1], "--workers", 2)
    assert (status, out) == (0, whole)


def test_official_sample(tmp_path, capsys):
    """tydi_eval.py's figures of its own sample: F1 of Arabic's minimal answer 0.5707656612529002."""
    folder = REAL / "tydiqa"
    if not folder.is_dir():
        pytest.skip("needs the shared data")
    report = tmp_path / "report.json"
    files = ["--gold", folder / "small_gold_annotation.jsonl.gz", "--predictions", folder / "sample_prediction.jsonl"]
    assert run(capsys, *files, "--json", report)[0] == 0
    official = json.loads(report.read_text(encoding="utf-8"))["official"]
    assert official["arabic"]["minimal-best-threshold-f1"] == 0.5707656612529002
    assert official["arabic"]["minimal-best-threshold"] == 15.898082256317139
    published = {"passage": 0.6666666666666666, "minimal": 0.5235885537509667}
    assert official["average"] == {
        f"avg_{kind}_{name}": value for kind, value in published.items() for name in ("f1", "recall", "precision")
    }

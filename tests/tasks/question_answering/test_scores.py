import json

import pytest

from fairseq_poolingformer.cli import score
from tests import lab
from tests.tasks.question_answering.random_answers import write_set


def run(capsys, *argv: object) -> tuple[int, str, str]:
    status = score.main(["--task", "question_answering", *map(str, argv)])
    return status, *capsys.readouterr()


def _gold(example_id: int = 1, annotators: int = 2, language: str = "thai", unit: str = "") -> dict:
    """An example of TyDi QA, or with a unit of Natural Questions, all of whose annotators agree."""
    span = {f"start_{unit}": 3, f"end_{unit}": 9}
    minimal = {"plaintext_start_byte": 3, "plaintext_end_byte": 9}
    answers = (
        {"long_answer": span, "short_answers": [span]}
        if unit
        else {"passage_answer": {"candidate_index": 4}, "minimal_answer": minimal}
    )
    annotations = [{**answers, "yes_no_answer": "NONE"}] * annotators
    return {"example_id": example_id, "annotations": annotations} | ({} if unit else {"language": language})


def _prediction(example_id: int = 1, language: str = "thai", unit: str = "", score: float = 1.5) -> dict:
    """The answers of :func:`_gold`."""
    if unit:
        span = {f"start_{unit}": 3, f"end_{unit}": 9}
        answers = {"long_answer": span, "short_answers": [span]}
        return {"example_id": example_id, **answers, "long_answer_score": score, "short_answers_score": score}
    minimal = {"minimal_answer": {"start_byte_offset": 3, "end_byte_offset": 9}, "minimal_answer_score": score}
    passage = {"passage_answer_index": 4, "passage_answer_score": score}
    return {"example_id": example_id, "language": language, **passage, **minimal}


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
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["official"]["short-best-threshold-f1"] == pytest.approx(2 / 3)
    assert content["official"]["long-recall-at-precision>=0.9"] == 1
    assert content["all"]["long"]["at_threshold"] == {"f1": 1, "precision": 1, "recall": 1, "threshold": 1.5}
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
    for flags, f1 in (((), "0.00"), (("--min-annotations", 1), "100.00")):
        status, out, _ = run(capsys, "--gold", files[0], "--predictions", files[1], *flags)
        assert (status, _cells(out, "all examples")[0][3]) == (0, f1)
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
    assert (status, out, err.count("\n"), message in err) == (1, "", 1, True), err


def test_shards_and_several_gold_files_are_scored_together_and_each_once(tmp_path, capsys):
    gold = [_gold(number, unit="token") for number in range(4)]
    predictions = [_prediction(number, unit="token", score=number) for number in range(4)]
    files = write_set(tmp_path / "whole", gold, {"predictions": predictions})
    places = {"a": (0, 3), "b": (3, 4), "c": (2, 4)}
    parts = [
        write_set(tmp_path / name, gold[slice(*place)], {"predictions": predictions[slice(*place)]})
        for name, place in places.items()
    ]
    (gold_a, a), (gold_b, b), (_, c) = parts
    whole = run(capsys, files[1], "--gold", files[0])
    assert run(capsys, a, b, "--gold", files[0]) == whole
    assert run(capsys, "--gold", gold_a, gold_b, "--predictions", files[1], "--workers", 2) == whole
    status, _, err = run(capsys, a, c, "--gold", files[0])
    assert (status, "example 2 is in another file as well; give each shard once" in err) == (1, True)
    with pytest.raises(SystemExit):
        run(capsys, "--gold", files[0])
    assert "give a file of predictions, or those of all shards" in capsys.readouterr().err


def test_official_sample(tmp_path, capsys):
    """tydi_eval.py's figures of its own sample: F1 of Arabic's minimal answer 0.5707656612529002."""
    folder = lab.SHARED_DATA / "tydiqa"
    if not folder.is_dir():
        pytest.skip("needs the shared data")
    files = ["--gold", folder / "small_gold_annotation.jsonl.gz", "--predictions", folder / "sample_prediction.jsonl"]
    assert run(capsys, *files, "--json", tmp_path / "report.json")[0] == 0
    official = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["official"]
    assert official["arabic"]["minimal-best-threshold-f1"] == 0.5707656612529002
    assert official["arabic"]["minimal-best-threshold"] == 15.898082256317139
    for kind, value in {"passage": 0.6666666666666666, "minimal": 0.5235885537509667}.items():
        assert {official["average"].pop(f"avg_{kind}_{name}") for name in ("f1", "recall", "precision")} == {value}
    assert official["average"] == {}

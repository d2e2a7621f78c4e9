"""QASPER's figures: those that the official script gave for made sets, and wrong files."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from fairseq_poolingformer.cli import score as command
from fairseq_poolingformer.tasks.qasper import scores
from tests.tasks.qasper.random_qasper import random_set
from tests.tasks.released_files import QASPER_QUESTIONS, write_qasper

FIXTURE = Path(__file__).with_name("official_figures.json")
CLONE = "qasper-led-baseline"


def own_figures(papers, predictions):
    gold = {question["question_id"]: scores.references_of(question) for x in papers.values() for question in x["qas"]}
    found = {name: scores.Reference((one["answer"],), tuple(one["evidence"])) for name, one in predictions.items()}
    return scores.figures(gold, found)


def official_figures(script, papers, predictions):
    """Under the names that they have here."""
    whole, text = (
        script.evaluate(script.get_answers_and_evidence(papers, is_text), predictions) for is_text in (False, True)
    )
    kinds = {f"answer_f1_{kind}": value for kind, value in whole["Answer F1 by type"].items()}
    means = {"answer_f1": whole["Answer F1"], "evidence_f1": whole["Evidence F1"]}
    return {**means, "text_evidence_f1": text["Evidence F1"], **kinds}


def test_figures_that_the_official_script_gave():
    """Of the sets of seeds 0 to 39, digit for digit."""
    figures = json.loads(FIXTURE.read_text())
    assert len(figures) == 40
    assert [own_figures(*random_set(seed)) for seed in range(len(figures))] == figures


def test_equals_the_official_script_to_the_last_bit(pytestconfig):
    folder = pytestconfig.getoption("--official-qa-scripts", default=None)
    path = Path(folder or "") / CLONE / "scripts" / "evaluator.py"
    if not path.is_file():
        pytest.skip(f"needs --official-qa-scripts FOLDER with {CLONE}")
    spec = spec_from_file_location("qasper_evaluator", path)
    script = sys.modules["qasper_evaluator"] = module_from_spec(spec)
    spec.loader.exec_module(script)
    for seed in range(40, 3000):
        one = random_set(seed)
        assert own_figures(*one) == official_figures(script, *one)


def test_by_hand(tmp_path):
    """The best reference counts; a missing answer is wrong, and its kind is not counted."""
    gold = write_qasper(tmp_path / "gold.json")
    evidence = [*QASPER_QUESTIONS[0]["answers"][0]["answer"]["evidence"], "other"]
    lines = [
        {"question_id": "q1", "predicted_answer": "the thirty words", "predicted_evidence": evidence},
        {"question_id": "q3", "predicted_answer": "unanswerable!", "predicted_evidence": []},
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command.main([str(tmp_path / "p.jsonl"), "--gold", str(gold)]) == 0  # the file tells whose it is
    figures = scores.score([gold], tmp_path / "p.jsonl")
    assert figures["answer_f1"] == pytest.approx(100 * (0.8 + 1) / 4)
    assert figures["evidence_f1"] == pytest.approx(100 * (2 / 3 + 1) / 4)
    assert (figures["answer_f1_extractive"], figures["answer_f1_none"]) == (pytest.approx(80), 100)
    assert figures["answer_f1_boolean"] == 0
    assert (figures["examples"], figures["without_prediction"]) == (4, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"question_id": "q9", "predicted_answer": "", "predicted_evidence": []},
            "no question of the gold data has",
        ),
        ({"question_id": "q1", "predicted_evidence": []}, "p.jsonl, line 1: 'predicted_answer' must be a string"),
        ({"question_id": "q1", "predicted_answer": "", "predicted_evidence": [1]}, "line 1: 'predicted_evidence' must"),
    ],
)
def test_wrong_files_are_named(line, message, tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps(line))
    with pytest.raises(ValueError, match=message):
        scores.score([write_qasper(tmp_path / "gold.json")], tmp_path / "p.jsonl")
    questions = [{**QASPER_QUESTIONS[0], "answers": []}]
    with pytest.raises(ValueError, match=r"gold\.json, q1: no answers"):
        scores.score([write_qasper(tmp_path / "gold.json", questions)], tmp_path / "p.jsonl")


def test_questions_that_come_twice(tmp_path):
    """Or else the last answer would count, whatever the others are."""
    line = json.dumps({"question_id": "q1", "predicted_answer": "", "predicted_evidence": []})
    (tmp_path / "p.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(ValueError, match=r"p\.jsonl, line 2: question 'q1' comes a second time"):
        scores.score([write_qasper(tmp_path / "gold.json")], tmp_path / "p.jsonl")
    with pytest.raises(ValueError, match=r"gold\.json, q1: the question comes a second time"):
        scores.read_gold(write_qasper(tmp_path / "gold.json", QASPER_QUESTIONS[:1] * 2))

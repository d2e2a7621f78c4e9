"""``poolingformer-score`` for presets and suites: predictions in every form, the suites' score, errors for people."""

import csv
import json
import re

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.presets import SUITES, scores
from preprocess import presets
from tests.preprocess import made_presets


@pytest.fixture
def scrolls(tmp_path):
    """The archives of SCROLLS and predictions of each task: the right ones, but for the last."""
    files = [
        made_presets.suite(task, made_presets.OUTPUTS.get(task, "so it is"))(tmp_path)[0] for task in SUITES["scrolls"]
    ]
    gold = {task: presets.gold(f"scrolls/{task}", list(map(str, files))) for task in SUITES["scrolls"]}
    found = {task: {name: texts[0] for name, texts in by_id.items()} for task, by_id in gold.items()}
    found["contract_nli"] = dict.fromkeys(found["contract_nli"], "No")
    return [str(file) for file in files], found


def run(capsys, *arguments):
    status = score.main([*map(str, arguments)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("form", ["object", "lines", "lines of objects", "one object"])
def test_forms_of_predictions(scrolls, tmp_path, capsys, form):
    files, predictions = scrolls
    texts = {**predictions["quality"], "validation1": "(a) two"}
    rows = {
        "object": [texts],
        "lines": [{"id": name, "prediction": text, "more": 1} for name, text in texts.items()],
        "lines of objects": [{name: text} for name, text in texts.items()],
        "one object": None,
    }[form]
    path = tmp_path / "predictions.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) if rows else json.dumps(texts, indent=2))
    status, out, err = run(capsys, "--task", "scrolls/quality", path, "--gold", *files, "--json", tmp_path / "out")
    assert (status, err) == (0, "")
    assert "exact_match                        50.0000  [" in out
    found = json.loads((tmp_path / "out").read_text())
    assert found["figures"] == {"exact_match": 50.0, "mean_prediction_length_characters": 7.0, "num_predicted": 2}
    assert found["intervals"]["scrolls/quality"]["exact_match"] == [0.0, 100.0]


def test_what_fairseq_generate_prints(scrolls, tmp_path, capsys):
    """The numbers are those of the data folder's examples, which --ids names."""
    files, _ = scrolls
    (tmp_path / "valid.id.txt").write_text("validation0\nvalidation1\n")
    lines = [
        "S-1\tb",
        "T-1\tso",
        "H-1\t-0.5\t4",
        "D-1\t-0.5\tso it was",
        "S-0\ta",
        "H-0\t-0.5\t4",
        "D-0\t-0.5\tso it is",
    ]
    (tmp_path / "gen.out").write_text("\n".join(lines) + "\nGenerate valid with beam=5: BLEU4 = 1\n")
    more = ["--ids", tmp_path / "valid.id.txt"]
    status, out, _ = run(capsys, "--task", "scrolls/qasper", tmp_path / "gen.out", "--gold", *files, *more)
    assert status == 0
    assert "f1                                 83.3333" in out


@pytest.mark.parametrize("form", ["csv", "csv of Excel", "folder"])
def test_the_score_of_a_suite(scrolls, tmp_path, capsys, form):
    files, predictions = scrolls
    path = tmp_path / "submission"
    if form != "folder":
        with open(path, "w", newline="", encoding="utf-8-sig" if "Excel" in form else "utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["Task", "ID", "Prediction"])
            rows.writerows([task, name, text] for task, texts in predictions.items() for name, text in texts.items())
    else:
        path.mkdir()
        for task, texts in predictions.items():
            (path / f"preds_{task}.json").write_text(json.dumps(texts))
    status, out, err = run(capsys, "--task", "scrolls", path, "--gold", *files, "--json", tmp_path / "out")
    assert (status, err) == (0, "")
    figures = json.loads((tmp_path / "out").read_text())["figures"]
    assert figures["scrolls"] == {"scrolls_score": pytest.approx(600 / 7)}
    assert figures["scrolls/gov_report"]["geometric_mean"] == pytest.approx(100)
    assert figures["scrolls/contract_nli"]["exact_match"] == 0
    assert "scrolls_score                      85.7143" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation1": None}, "1 of 2 ids have no prediction, such as 'validation1'"),
        ({"other": "x"}, "1 ids are not in the gold data, such as 'other'"),
        ({"validation0": None, "validation1": None, "x": "x"}, "are they of another split?"),
    ],
)
def test_ids_that_do_not_fit(scrolls, tmp_path, capsys, change, message):
    files, predictions = scrolls
    texts = {name: text for name, text in (predictions["qasper"] | change).items() if text is not None}
    (tmp_path / "p.json").write_text(json.dumps(texts))
    status, out, err = run(capsys, "--task", "scrolls/qasper", tmp_path / "p.json", "--gold", *files)
    assert (status, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Task,ID\nqmsum,1\n", "the columns must be ID, Prediction, Task, are ['Task', 'ID']"),
        ("Task,ID,Prediction\nmusique,1,x\n", "line 2: '1' of 'musique' is of no task of scrolls"),
        ("Task,ID,Prediction\nqmsum,1,x\nqmsum,1,y\n", "line 3: '1' of 'qmsum' comes a second time"),
        ('Task,ID,Prediction\nqmsum,1,"x\n', "broken CSV"),
        ("Task,ID,Prediction\nqmsum,1,yes, and no\n", "line 2: '1' of 'qmsum' must have three fields"),
        ("Task,ID,Prediction\nqmsum,1,x\n", "scrolls/gov_report: 2 of 2 ids have no prediction"),
    ],
)
def test_submissions_that_are_none(scrolls, tmp_path, capsys, content, message):
    (tmp_path / "s.csv").write_text(content)
    status, _, err = run(capsys, "--task", "scrolls", tmp_path / "s.csv", "--gold", *scrolls[0])
    assert status == 1
    assert message in err


def test_figures_have_the_four_digits_of_the_official_script():
    gold = {"1": ["p q r"], "2": ["x"], "3": ["y"]}
    figures, _ = scores.score("scrolls/qasper", gold, {"1": "p", "2": "x", "3": "z"})
    assert figures == {"f1": 50.0, "mean_prediction_length_characters": 1.0, "num_predicted": 3}
    figures, _ = scores.score("scrolls/qasper", gold, {"1": "p q", "2": "z", "3": "z"})
    assert figures == {"f1": 26.6667, "mean_prediction_length_characters": 1.6667, "num_predicted": 3}


def test_documents_whose_reference_is_null_are_left_out_and_counted(tmp_path, capsys):
    rows = [{"id": name, "input": "Why?", "output": output} for name, output in (("a", "so it is"), ("b", None))]
    (tmp_path / "valid.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "p.json").write_text(json.dumps({"a": "so it is", "b": "x"}))
    words = ["--task", "scrolls/gov_report", tmp_path / "p.json", "--gold", tmp_path / "valid.jsonl"]
    status, out, err = run(capsys, *words)
    assert status == 0
    assert err == "scrolls/gov_report: 1 of 2 documents have no reference and are left out\n"
    assert re.search(r"rouge1 +100\.0000", out)

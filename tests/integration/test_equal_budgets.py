"""The comparisons on equal budgets, from articles to their tables, at tiny size."""

from __future__ import annotations

import gzip
import json
import sys

import pytest

from tests.lab import run_script


def write_articles(path, count: int) -> str:
    """Articles of arXiv's and PubMed's layout; returns the text of the first."""
    articles = [
        {
            "section_names": ["Motivation", ""],
            "sections": [[f"Number {number} is  long.", "So\nit is cut."], ["attention window " * 400]],
        }
        for number in range(count)
    ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(article) + "\n" for article in articles)
    return "Motivation\nNumber 0 is long. So it is cut.\n" + " ".join(["attention window"] * 400) + "\n\n"


@pytest.fixture
def articles(tmp_path):
    path = tmp_path / "articles.txt.gz"
    write_articles(path, 40)
    return path


def test_what_a_command_logs_and_takes_is_kept_if_it_succeeds(tmp_path):
    log = """\
num. shared model params: 12,345 (num. trained: 12,345)
{"epoch": 1, "loss": "3.5", "train_num_updates": "2"}
epoch {one}
{"valid_loss": "3.25", "loss": "3.0"}
"""
    command = f"import pathlib, sys; x = bytearray(300 * 2**20); pathlib.Path(sys.argv[1]).write_text({log!r})"
    arguments = (tmp_path / "result.json", "--log", tmp_path / "log", "--", sys.executable, "-c")
    run_script("equal_budget.py", *arguments, command, tmp_path / "log")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["last_loss"], result["valid_loss"], result["parameters"]) == (3.0, 3.25, 12345)
    assert result["gib"] > 0.3
    assert result["cpu_seconds"] == pytest.approx(2 * result["seconds_per_update"]) != 0
    (tmp_path / "result.json").unlink()
    run_script("equal_budget.py", *arguments, "raise SystemExit(3)", status=3)
    assert not (tmp_path / "result.json").exists()


def test_seeds_of_a_system_are_one_row(tmp_path):
    for name, values in (("a", {"bpc": 2.0}), ("b", {"bpc": 3.0}), ("c", {"bpc": 1.23456, "gib": 1})):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    runs = [f"{name}={tmp_path}/{file}.json" for name, file in (("one", "a"), ("one", "b"), ("two", "c"))]
    lines = run_script("compare.py", "means", "bpc,gib", *runs).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["", "one", "two"]
    assert lines[1].split("  ", 1)[1].split() == ["2.5", "[2,", "3]", "-"]
    assert lines[2].split() == ["two", "1.235", "1"]


@pytest.mark.full
def test_masked_language_models(articles, tmp_path):
    arguments = (f"train={articles}", f"valid={articles}", f"out={tmp_path}/out", f"python={sys.executable}")
    small = ("valid_articles=2", "vocabulary=285", "updates=2,1", "tokens=2048", "seeds=1", "models=full_512,fusion")
    output = run_script("pretraining/equal_budget.sh", *arguments, *small)
    rows = [line.split() for line in output.splitlines()[-2:]]
    assert [row[0] for row in rows] == ["full_512", "fusion"]
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[1:])
    again = run_script("pretraining/equal_budget.sh", *arguments, *small)
    assert again.splitlines()[-2:] == output.splitlines()[-2:]
    assert "begin training" not in again


@pytest.mark.full
def test_character_language_models(articles, tmp_path):
    with gzip.open(tmp_path / "text.gz", "wt") as file:
        file.write(run_script("article_bodies.py", articles))
    small = ("held_out=600", "updates=10", f"out={tmp_path}/out", f"python={sys.executable}", "models=longformer,gaa")
    output = run_script("char_lm/equal_budget.sh", f"text={tmp_path}/text.gz", *small)
    longformer, gaa = (line.split() for line in output.splitlines()[-2:])
    assert longformer[0] == "longformer"
    assert longformer[2] == "-"
    assert gaa[0] == "gaa"
    bits, span, *others = (float(cell.replace(",", "")) for cell in gaa[1:])
    assert min(bits, *others) > 0
    assert span >= 0  # in so few updates the published learning rate may shrink every span to nothing


@pytest.mark.parametrize("script", ["pretraining", "char_lm"])
def test_mistakes_are_explained(script, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    given = f"train={file} valid={file} text={file}".split()[slice(2) if script == "pretraining" else slice(2, 3)]
    assert "see --help" in run_script(f"{script}/equal_budget.sh", status=1)
    assert "models= must be some of" in run_script(
        f"{script}/equal_budget.sh", *given, "models=no", "dry_run=1", status=1
    )

"""The documents that messages and comments of the sources name are there, and hold what is promised."""

import re
from pathlib import Path

import pytest

from preprocess import arxiv_pubmed, labelled_text
from tests.preprocess.conftest import convert

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for folder in ("fairseq_poolingformer", "preprocess", "run_scripts", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".sh", ".txt")
] + [ROOT / "setup.py", ROOT / "Dockerfile"]
PROMISES = {  # what a source says of a document -> a line of it
    "docs/fairseq.md gives the lines for doing that by hand": "`run_scripts/install.sh` does this; by hand:",
    "docs/fairseq.md says how to build them": "## apex",
    "docs/quickstart.md explains what it shows": "# What the quickstart shows",
    "docs/quickstart.md says how": "## The demo model",
}


def prose(path: Path) -> str:
    """The text of a source without the marks of comments and strings between two lines of a sentence."""
    return re.sub(r'"?\s*\n\s*[#"]?\s*', " ", path.read_text(encoding="utf-8"))


def test_named_documents_and_headings_exist():
    named = {match for path in SOURCES for match in re.findall(r"(?<!\w)(docs/\w+\.md)(?:#([\w-]+))?", prose(path))}
    assert len(named) > 5
    for name, anchor in sorted(named):
        headings = re.findall(r"^#+ (.*)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, (name, anchor)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", "docs/README.md"])
def test_links_lead_to_files(document):
    """All of which the source distribution has; Sphinx follows the anchors."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / document).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / document).parent.joinpath(link).exists()] == []


def test_every_promise_is_known():
    verbs = "says|has|lists|explains|gives|tells|shows"
    promised = {
        match for path in SOURCES for match in re.findall(rf"docs/\w+\.md (?:{verbs})\b[^.,;:)\"]*", prose(path))
    }
    assert {promise.strip() for promise in promised} == set(PROMISES)


@pytest.mark.parametrize("promise", PROMISES)
def test_promises_are_kept(promise):
    lines = (ROOT / promise.partition(" ")[0]).read_text(encoding="utf-8").splitlines()
    assert PROMISES[promise] in lines


def test_records_of_my_data_are_read(tmp_path):
    blocks = re.findall(r"```json\n(.*?)```", (ROOT / "docs/my_data.md").read_text(encoding="utf-8"), re.DOTALL)
    for corpus, records in zip((arxiv_pubmed, labelled_text), blocks, strict=True):
        (tmp_path / "train.jsonl").write_text(records, encoding="utf-8")
        folder = tmp_path / corpus.__name__
        assert convert(corpus, folder, "--data", tmp_path / "train.jsonl") == 0
        assert (folder / "train.id.txt").read_text().split() == re.findall(r'"id": "(\w+)"', records)


def test_every_row_of_reliability_names_tests_that_exist():
    rows = re.findall(
        r"^\| [^|]*\w[^|]* \|.*", (ROOT / "docs/reliability.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, name in named:
            assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), (path, name)

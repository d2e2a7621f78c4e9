import json
import random
import re

import pytest

from preprocess import arxiv_pubmed, labelled_text
from tests.preprocess.conftest import convert

WORDS = ["the", "theory", "of", "attention", "another", "document", "what", "it", "attends", "to", "more"]


def rows(count, seed):
    rng = random.Random(seed)

    def text(number, words):
        return " ".join(rng.choices(WORDS, k=words)) + f" {seed} {number}."

    return [{"id": f"{seed}-{n}", "document": text(n, 30), "summary": text(n, 6)} for n in range(count)]


@pytest.fixture
def report(tmp_path, write_lines, capsys):
    """Runs a command with --report on splits; returns its exit status and the text."""

    def run(splits, *options, command=arxiv_pubmed):
        files = []
        for split, records in splits.items():
            files += [f"--{split}", write_lines(f"{split}.jsonl", records)]
        status = convert(command, tmp_path / "data", "--report", *files, *options)
        text = (tmp_path / "data" / "report.txt").read_text()
        assert text.partition("\n\n")[0] in "".join(capsys.readouterr())
        return status, text

    return run


def clean():
    return {"train": rows(60, 1), "valid": rows(20, 2)}


def test_clean_data_has_no_finding_and_a_finished_folder_gets_its_report(report, tmp_path):
    status, text = report(clean())
    assert status == 0
    assert text.startswith("arxiv_pubmed: nothing suspicious was found\n")
    assert "examples" in text  # the table
    (tmp_path / "data" / "report.txt").unlink()
    assert report(clean())[1] == text


def kinds(text):
    return re.findall(r"^- ([^:]+):", text, re.MULTILINE)


FINDINGS = {
    "documents in several splits": ("valid", {"document": rows(1, 1)[0]["document"].upper()}, "remove them from train"),
    "duplicates": ("train", {"document": rows(1, 1)[0]["document"].replace(" ", "  ")}, "keep one of each"),
    "identical summaries": ("train", {"document": "The theory of it", "summary": "the  Theory of it"}, "remove them"),
    "rejected records": ("train", {"summary": " "}, "name another key or column"),
}


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_finding(kind, report):
    split, change, remedy = FINDINGS[kind]
    splits = clean()
    splits[split][3] |= change
    status, text = report(splits, "--max-reject-fraction", 0.1)
    assert status == 0
    also = {"documents in several splits"} if kind == "duplicates" else set()
    assert {kind} <= set(kinds(text)) <= {kind, *also}, text
    assert remedy in text


def test_wrong_columns_one_summary_for_many_and_a_folder_that_cannot_be_made(report):
    splits = clean()
    for number, row in enumerate(splits["train"]):
        row["link"] = f"https://example.org/{row['id']}" if number < 40 else f"number {number}"
    _, text = report(splits, "--article-key", "link", "document")
    assert "train: 40 of 60 documents (66.7 %) are a single word, as ids and links are" in text
    _, text = report(splits, "--article-key", "summary", "--summary-key", "document", "--overwrite")
    assert "exchange the keys or columns" in text
    for row in splits["train"][:10]:
        row["summary"] = "not to attend to"
    _, text = report(splits, "--overwrite")
    assert kinds(text) == ["the same summary"]
    assert "train: 10 of 60 documents (16.7 %) have one and the same summary" in text
    for row in splits["train"][:30]:
        row["summary"] = json.dumps({"text": row["summary"]})
    status, text = report(splits, "--overwrite")
    assert status == 1
    assert "30 of 60 records (50.0 %) are unusable, first" in text
    assert "name what is inside, such as --summary-key summary.text" in text


def test_labels(report):
    train, valid = clean().values()
    ab, abc = (lambda n: "ab"[n % 2]), (lambda n: "abc"[n % 3])
    for of_train, of_valid, options, expected in (
        (ab, ab, (), []),
        (lambda n: "ab"[n == 3], abc, ("--labels", "a", "b", "c"), ["labels that train lacks"]),
        (lambda n: ["a", "b"][: n % 3], lambda n: ["a"], (), []),
        (lambda n: n / 7, lambda n: n / 3, (), []),
    ):
        splits = {
            split: [{"text": row["document"], "label": label(n)} for n, row in enumerate(records)]
            for split, records, label in (("train", train, of_train), ("valid", valid, of_valid))
        }
        _, text = report(splits, *options, "--overwrite", command=labelled_text)
        assert kinds(text) == expected

"""Training data: columns, division by equal text within labels, what is left out, and what is said of it."""

import json
from collections import Counter

import pytest

from fairseq_poolingformer.cli.finetune.data import findings_of_labels
from tests.cli.finetune.conftest import read


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def rows(count=20, **columns):
    return [
        {"text": f"t {n}", "label": n % 2} | {name: f"{value} {n}" for name, value in columns.items()}
        for n in range(count)
    ]


NESTED = ["--text-column", "x.y", "--target-column", "z"]


@pytest.mark.parametrize(
    ("row", "flags", "task", "texts"),
    [
        ({"article": "a b", "abstract": "c"}, [], "summarization", ("a b", "c")),
        ({"document": ["a", "b"], "summary": "c", "url": "x"}, [], "summarization", ("a\nb", "c")),
        ({"text": "a b", "label": 3}, [], "classification", ("a b",)),
        ({"text": "a b", "label": 3, "summary": "c"}, ["--task", "summarization"], "summarization", ("a b", "c")),
        ({"text": "a", "label": 3, "summary": "c"}, ["--target-column", "label"], "classification", ("a",)),
        ({"x": {"y": "a"}, "z": "c"}, [*NESTED, "--task", "summarization"], "summarization", ("a", "c")),
    ],
)
def test_columns_tell_the_task(tmp_path, row, flags, task, texts):
    others = [row | ({"label": n} if "label" in row else {}) for n in range(3)]
    for split in ("train", "valid"):
        write(tmp_path / f"{split}.jsonl", [row, *others])
    data = read(tmp_path, *flags)
    assert (data.task, data.splits["valid"][0].texts) == (task, texts)


@pytest.mark.parametrize(
    ("changed", "flags", "message"),
    [
        (
            {"text": None, "body": "a"},
            [],
            "no column document, text, article; its columns are label, body; name one ",
        ),
        ({"label": None, "stars": 1}, [], "no column summary, abstract, label; its columns are text, stars; name one"),
        (
            {"document": "a"},
            [],
            "document and text may be it; its columns are text, label, document; name one with -",
        ),
        ({"summary": "a"}, [], "summary and label may be it; .*; name one with --target-column"),
        ({"a": 1}, ["--text-column", "b"], "no column b; its columns are text, label, a; name one with --text-column"),
        ({"a": 1}, ["--target-column", "a"], "is a a summary or a label\\? give --task summarization or classificat"),
        ({"label": "same"}, [], "1 label, such as same; needs 2 to 1,000; name another column"),
        ({"text": " "}, [], "20 of 20 records of train cannot be used, such as line 1: empty text"),
        ({"label": ["a", "b"]}, [], "20 of 20 records of train cannot be used, such as line 1: several labels"),
        ({"text": 3}, [], "line 1: wrong type: text is a number"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_remedy(tmp_path, changed, flags, message):
    path = write(tmp_path / "data.jsonl", [row | changed for row in rows()])
    with pytest.raises(ValueError, match=message):
        read(path, *flags)


def test_some_bad_records_and_others(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"text": " " * (n < 3) or f"t {n}", "label": n % 2} for n in range(20)])
    with pytest.raises(ValueError, match="3 of 20 records of train cannot be used"):
        read(path)
    for most in (0.15, 0.2):
        assert sum(map(len, read(path, "--max-reject-fraction", most).splits.values())) == 17
    with pytest.raises(ValueError, match="5 examples of 5 different texts are too few to divide; name files with --va"):
        read(write(tmp_path / "few.jsonl", rows(5)))
    with pytest.raises(ValueError, match=r"empty\.jsonl: no records with columns in it"):
        read(write(tmp_path / "empty.jsonl", []))
    (tmp_path / "only").mkdir()
    write(tmp_path / "only" / "test.jsonl", rows())
    with pytest.raises(ValueError, match="only test in it, no training data"):
        read(tmp_path / "only")


def test_no_text_is_in_two_splits(tmp_path):
    texts = (f"{'the  Text' if n % 2 else 'The text'} {n // 4}" for n in range(80))
    same = [{"id": str(n), "text": text, "label": n % 2} for n, text in enumerate(texts)]
    data = read(write(tmp_path / "data.jsonl", same))
    texts = {split: {" ".join(one.texts[0].lower().split()) for one in ones} for split, ones in data.splits.items()}
    assert {split: len(examples) for split, examples in data.splits.items()} == {"train": 64, "test": 8, "valid": 8}
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 20
    assert (
        "no file says test or valid: by a hash of the texts, 10 % as test and 10 % as valid of each label" in data.notes
    )
    assert data.report().startswith("classification, columns: text to label\nexamples: 64 train, 8 test, 8 valid\n")


def test_each_label_has_its_share(tmp_path):
    """100 documents with labels 60 : 35 : 4 : 1; a single one stays in train."""
    labels = ["a"] * 60 + ["b"] * 35 + ["c"] * 4 + ["d"]
    path = write(tmp_path / "data.jsonl", [{"text": f"t {n}", "label": label} for n, label in enumerate(labels)])
    data = read(path, "--valid-share", 0.2, "--test-share", 0.2)
    counts = {split: Counter(one.label for one in examples) for split, examples in data.splits.items()}
    assert counts["test"] == {"a": 12, "b": 7, "c": 1}
    assert counts["valid"]["a"] in (11, 12, 13)
    assert counts["valid"]["b"] in (6, 7, 8)
    assert counts["train"]["d"] == 1
    other = read(path, "--valid-share", 0.2, "--test-share", 0.2, "--split-seed", 1)
    assert {one.id for one in data.splits["valid"]} != {one.id for one in other.splits["valid"]}


def test_splits_are_those_of_files_or_of_a_column(tmp_path):
    for split in ("train", "validation", "test"):
        there = [{"article": f"a {n} {split}", "abstract": "b" * (split != "test" or n > 2)} for n in range(12)]
        write(tmp_path / f"{split}.jsonl", there)
    data = read(tmp_path)
    assert "test: 3 documents have no reference and are left out" in data.notes
    assert [len(data.splits[split]) for split in ("train", "valid", "test")] == [12, 12, 9]
    data = read(tmp_path / "train.jsonl", "--valid", tmp_path / "validation.jsonl")
    assert {split: len(examples) for split, examples in data.splits.items()} == {"train": 12, "valid": 12}
    assert data.evaluated == "valid"
    divided = [row | {"part": ("train", "dev", "test")[n % 3]} for n, row in enumerate(rows(12))]
    data = read(write(tmp_path / "other.jsonl", divided), "--split-key", "part")
    assert {split: len(examples) for split, examples in data.splits.items()} == {"train": 4, "valid": 4, "test": 4}


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        ("pos neg pos neg pos", []),
        ("1 2 1 2 2", []),
        ("a b c d d", ["almost as many labels as documents"]),
        ("12% 3% 3% 12% 12%", ["amounts"]),
        ("0.5 1.5 .5 0.5 .5 0.5", ["amounts"]),
        (["['a', 'b']", "['b']", "['b']", "['b']", "['b']"], ["lists as text"]),
        (["Pos", "pos", "pos", "Pos", "Pos"], ["labels that differ in case or blanks"]),
        (["new york", "New York", "newyork", *["new york"] * 4], ["labels that differ in case or blanks"]),
    ],
)
def test_suspicious_labels_are_findings(labels, kinds):
    counts = Counter(labels.split() if isinstance(labels, str) else labels)
    assert [finding.kind for finding in findings_of_labels(counts)] == kinds


def test_findings_are_in_the_report(tmp_path):
    path = write(
        tmp_path / "data.jsonl", [{"text": f"t {n}", "label": ("12%", "Pos", "pos")[n % 3]} for n in range(30)]
    )
    report = read(path).report()
    assert "- amounts: train: 12%\n  To do: make classes of them" in report
    assert "- labels that differ in case or blanks: train: 'Pos' and 'pos'" in report

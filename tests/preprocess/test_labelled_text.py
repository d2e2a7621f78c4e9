from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_poolingformer.tasks.classification.data import ClassificationSplit, read_labels
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import imdb, labelled_text
from tests.preprocess.conftest import convert, refused
from tests.samples import write_imdb


def examples(folder, split):
    """Text and label by id."""
    tokenizer, labels, arrays = load_tokenizer(folder), read_labels(folder), ClassificationSplit.open(folder, split)
    ids = (folder / f"{split}.id.txt").read_text().split("\n")[:-1]
    return {
        name: (tokenizer.decode(arrays.document[k]), labels[arrays.label[k][0]] if len(arrays.label[k]) else None)
        for k, name in enumerate(ids)
    }


def test_imdb_is_divided_by_a_hash(tmp_path, capsys):
    expected = write_imdb(tmp_path / "aclImdb", 40)
    (tmp_path / "aclImdb" / "train" / "pos" / "bad.txt").write_bytes(b"\xff")
    (tmp_path / "aclImdb" / "test" / "pos" / "mark_9.txt").write_text("\ufeff other \n", encoding="utf-8")
    expected["test/pos/mark_9"] = "other", "pos"
    flags = ("--input-folder", tmp_path / "aclImdb", "--valid-share", 0.25, "--max-reject-fraction", 0.1)
    assert convert(imdb, tmp_path / "data", *flags) == 0
    train, valid, test = (examples(tmp_path / "data", split) for split in ("train", "valid", "test"))
    assert train | valid | test == expected
    assert not train.keys() & valid.keys()
    assert 8 <= len(valid) <= 32
    rejects = [(tmp_path / "data" / f"{split}.rejects.jsonl").read_text() for split in ("train", "valid")]
    assert "bad.txt" in "".join(rejects)
    assert convert(imdb, tmp_path / "again", *flags, "--split-seed", 1) == 0
    assert examples(tmp_path / "again", "valid").keys() != valid.keys()
    errors = refused(capsys, imdb, tmp_path / "share", *flags, "--test-share", 0.1)
    assert "aclImdb/test is the test split; give 0" in errors


@pytest.mark.parametrize("shares", [(-0.1, 0.2), (0.2, -0.1), (0.5, 0.5)])
def test_shares_that_leave_nothing_for_training_are_refused(tmp_path, capsys, shares):
    write_imdb(tmp_path / "aclImdb", 1)
    words = ("--valid-share", shares[0], "--test-share", shares[1])
    error = refused(capsys, imdb, tmp_path / "data", "--input-folder", tmp_path / "aclImdb", *words)
    assert f"{' '.join(map(str, words))}: must be 0 or more, and together less than 1" in error


def test_any_lines_of_json(tmp_path, write_lines, capsys):
    good = [{"text": "the theory", "label": "b c"}, {"text": "document", "label": True, "id": "x"}]
    good.append({"text": "other", "label": 1, "id": 7})
    train = write_lines("train.jsonl", [*good, {"text": " ", "label": 1}, {"text": "no label"}, {"label": 1}])
    valid = write_lines("valid.jsonl", [{"text": "the", "label": 1}, {"text": "of", "label": "unknown"}])
    flags = ("--train", train, "--valid", valid, "--test", valid, "--max-reject-fraction", 0.6)
    assert convert(labelled_text, tmp_path / "data", *flags) == 0
    expected = {"train.jsonl:1": ("the theory", "b c"), "x": ("document", "true"), "7": ("other", "1")}
    assert examples(tmp_path / "data", "train") == expected
    assert examples(tmp_path / "data", "valid") == {"valid.jsonl:1": ("the", "1")}
    assert [label for _, label in examples(tmp_path / "data", "test").values()] == [None, None]
    assert "unknown label: 'unknown' is not one of 1, b c, true" in (tmp_path / "data/valid.rejects.jsonl").read_text()
    for rows, message in (([{"text": "the", "label": 1}], "1: 1"), ([], "none; are its files empty?")):
        errors = refused(capsys, labelled_text, tmp_path / "one", "--train", write_lines("one.jsonl", rows))
        assert f"needs two labels or more, has {message}" in errors
    other = write_lines("other.jsonl", [{"review": "the", "stars": 1}])
    for keys, message in (
        ([], "no text: the line lacks text; its keys are review, stars (name one with --text-key)"),
        (["--text-key", "review"], "no label: the line lacks label; its keys are review, stars (name one with --labe"),
    ):
        errors = refused(capsys, labelled_text, tmp_path / "one", "--train", other, *keys)
        assert f"has none; first reject: {other}, line 1: {message}" in errors


def test_a_pair_of_texts_is_what_roberta_reads(tmp_path, write_lines):
    """``<s> text </s></s> other </s>``, of which the task adds both ends."""
    train = write_lines("train.jsonl", [{"text": "the theory", "other": "of attention", "label": n} for n in (0, 1)])
    assert convert(labelled_text, tmp_path / "data", "--train", train, "--pair-key", "other") == 0
    tokenizer = load_tokenizer(tmp_path / "data")
    document = ClassificationSplit.open(tmp_path / "data", "train").document[0].tolist()
    assert document == [*tokenizer.encode("the theory"), EOS, EOS, *tokenizer.encode("of attention")]
    empty = SimpleNamespace(encode=lambda text: np.zeros(0, np.int64))
    document = labelled_text.LabelledDocument("x", ("\u200b",), "a")
    assert labelled_text.encode(empty, document, ["a"]).reason == "empty document"


def test_labels_that_contradict_each_other_or_are_alike_are_said(tmp_path, write_lines, capsys):
    labels = ["Caf\u00e9", "pos", "cafe\u0301 ", "neg"]
    rows = [{"id": f"r{k}", "text": f"the theory {k % 6}", "label": labels[k % 4]} for k in range(10)]
    train = write_lines("train.jsonl", [rows[0], rows[0] | {"id": "s"}, *rows[1:8]])
    valid = write_lines("valid.jsonl", [*rows[8:], rows[0] | {"id": "v"}])
    assert convert(labelled_text, tmp_path / "data", "--train", train, "--valid", valid) == 0
    lines = capsys.readouterr().out.splitlines()[-3:]
    # 0 and 6, 1 and 7 in train; 2 and 8, 3 and 9 across; s and v are as r0, which r6 is not
    assert lines[0].endswith("in train, too, such as r8 (train: r2), r9 (train: r3), v (train: r0)")
    assert lines[1] == "labels that may be the same: 'Café', 'cafe\u0301'"
    assert lines[2] == "10 documents have another one's text and another label, first r0 (Café) and r6 (cafe\u0301)"

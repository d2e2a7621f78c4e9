"""Documents with labels in the released formats: IMDB's folders, Hyperpartisan's XML, lines of JSON."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_poolingformer.downstream.document_classification import ClassificationSplit, read_labels
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import hyperpartisan, imdb, labelled_text
from preprocess.pipeline import labelled
from preprocess.pipeline.records import Record

TEXTS = ["the theory of attention", "another document", "what it attends to é 長", "!!!"]


def convert(corpus, folder, gpt2_folder, *args):
    flags = ("--gpt2-bpe", gpt2_folder, "--output-folder", folder, "--workers", 1, *args)
    return corpus.main([*map(str, flags)])


def examples(folder, split):
    """Text and label by id."""
    tokenizer, labels, arrays = load_tokenizer(folder), read_labels(folder), ClassificationSplit.open(folder, split)
    ids = (folder / f"{split}.id.txt").read_text().split("\n")[:-1]
    return {
        name: (tokenizer.decode(arrays.document[k]), labels[arrays.label[k][0]] if len(arrays.label[k]) else None)
        for k, name in enumerate(ids)
    }


def write_imdb(folder, count):
    expected = {}
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                text = f"{TEXTS[number % 4]} {number}"
                (folder / split / label / f"{number}_7.txt").write_text(text, encoding="utf-8")
                expected[f"{split}/{label}/{number}_7"] = text, label
    return expected


def test_imdb_is_divided_by_a_hash(tmp_path, gpt2_folder, capsys):
    expected = write_imdb(tmp_path / "aclImdb", 40)
    (tmp_path / "aclImdb" / "train" / "pos" / "bad.txt").write_bytes(b"\xff")
    (tmp_path / "aclImdb" / "test" / "pos" / "mark_9.txt").write_text("\ufeff other \n", encoding="utf-8")
    expected["test/pos/mark_9"] = "other", "pos"
    flags = ("--input", tmp_path / "aclImdb", "--valid-share", 0.25, "--max-reject-fraction", 0.1)
    assert convert(imdb, tmp_path / "data", gpt2_folder, *flags) == 0
    found = {split: examples(tmp_path / "data", split) for split in ("train", "valid", "test")}
    assert found["train"] | found["valid"] | found["test"] == expected
    assert not found["train"].keys() & found["valid"].keys()
    assert 8 <= len(found["valid"]) <= 32
    rejects = [(tmp_path / "data" / f"{split}.rejects.jsonl").read_text() for split in ("train", "valid")]
    assert "bad.txt" in "".join(rejects)
    assert convert(imdb, tmp_path / "again", gpt2_folder, *flags, "--split-seed", 1) == 0
    assert examples(tmp_path / "again", "valid").keys() != found["valid"].keys()
    assert convert(imdb, tmp_path / "share", gpt2_folder, *flags, "--test-share", 0.1) == 1
    assert "aclImdb/test is the test split; give 0" in capsys.readouterr().err


@pytest.mark.parametrize("shares", [(-0.1, 0.2), (0.2, -0.1), (0.5, 0.5)])
def test_shares_that_leave_nothing_for_training_are_refused(tmp_path, gpt2_folder, capsys, shares):
    write_imdb(tmp_path / "aclImdb", 1)
    flags = ("--input", tmp_path / "aclImdb", "--valid-share", shares[0], "--test-share", shares[1])
    assert convert(imdb, tmp_path / "data", gpt2_folder, *flags) == 1
    error = capsys.readouterr().err
    assert f"--valid-share {shares[0]} --test-share {shares[1]}: must be 0 or more, and together less than 1" in error


def test_a_document_without_tokens_is_refused():
    tokenizer = SimpleNamespace(encode=lambda text: np.zeros(0, np.int64))
    assert (
        labelled.encode(tokenizer, labelled.LabelledDocument("x", ("\u200b",), "a"), ["a"]).reason == "empty document"
    )


ARTICLE = (
    '<article id="{0:07d}" published-at="2017-09-10" title="T &amp; {0}">lead\n<p>{1} <a href="x">link</a> end</p>\n'
)


def write_hyperpartisan(folder, count):
    articles = [ARTICLE.format(number, TEXTS[number % 4]) + "<p>more</p> tail</article>" for number in range(count)]
    labels = [f'<article id="{n:07d}" hyperpartisan="{str(n % 3 == 0).lower()}" url="u"/>' for n in range(count)]
    folder.mkdir()
    for name, lines in (("articles", articles), ("truth", labels)):
        text = "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<articles>", *lines, "</articles>\n"])
        (folder / f"{name}.xml").write_text(text, encoding="utf-8")
    return {
        f"{n:07d}": (f"T & {n}\nlead\n{TEXTS[n % 4]} link end\nmore\ntail", str(n % 3 == 0).lower())
        for n in range(count)
    }


@pytest.mark.parametrize("block", [3, 2**20])
def test_hyperpartisan_pairs_articles_with_the_ground_truth(tmp_path, gpt2_folder, monkeypatch, block):
    monkeypatch.setattr(hyperpartisan, "_BLOCK", block)
    expected = write_hyperpartisan(tmp_path / "raw", 30)
    files = ("--articles", tmp_path / "raw" / "articles.xml", "--truth", tmp_path / "raw" / "truth.xml")
    shares = ("--valid-share", 0.3, "--test-share", 0.3)
    assert convert(hyperpartisan, tmp_path / "data", gpt2_folder, *files, *shares) == 0
    found = [examples(tmp_path / "data", split) for split in ("train", "valid", "test")]
    assert found[0] | found[1] | found[2] == expected
    assert sum(map(len, found)) == 30


@pytest.mark.parametrize("block", [1, 2**20])
def test_articles_need_nothing_between_them(tmp_path, monkeypatch, block):
    monkeypatch.setattr(hyperpartisan, "_BLOCK", block)
    elements = [b'<article id="1">\na</article>', b'<article x="" id="2" >b</article>', b"<article >c</article>"]
    path = tmp_path / "articles.xml"
    path.write_bytes(b"".join(elements))
    records = list(hyperpartisan.read_articles(path, {"1": "true", "2": "false"}))
    expected = zip([b"true", b"false", b""], elements, strict=True)
    assert [record.data for record in records] == [label + b"\n" + element for label, element in expected]
    assert [record.line for record in records] == [1, 2, 2]
    assert sum(record.progress for record in records) == path.stat().st_size


def test_articles_without_words_are_named():
    parsed = hyperpartisan.parse(Record("file", 1, b'true\n<article id="7" title=" "><p> </p>\n</article>'))
    assert parsed.reason == "empty document: article '7'"


def test_bad_articles_are_named(tmp_path, gpt2_folder, capsys):
    write_hyperpartisan(tmp_path / "raw", 12)
    articles, truth = tmp_path / "raw" / "articles.xml", tmp_path / "raw" / "truth.xml"
    text = articles.read_text().replace('id="0000003"', 'id="99"').replace("theory of attention <a", "<a", 1)
    articles.write_text(text.replace("another document <a", "<b", 1))
    files = ("--articles", articles, "--truth", truth, "--valid-share", 0, "--test-share", 0)
    assert convert(hyperpartisan, tmp_path / "data", gpt2_folder, *files, "--max-reject-fraction", 0.5) == 0
    rejects = [json.loads(line) for line in (tmp_path / "data" / "train.rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [6, 12]
    assert rejects[0]["reason"].startswith("broken XML: ")
    assert rejects[1]["reason"] == "no ground truth: article '99'"
    articles.write_text(text[:-100])
    assert convert(hyperpartisan, tmp_path / "cut", gpt2_folder, *files) == 1
    assert "articles.xml: ends inside an article; fetch it again" in capsys.readouterr().err
    truth.write_text("<articles><article id='1' hyperpartisan='maybe'/></articles>")
    assert convert(hyperpartisan, tmp_path / "cut", gpt2_folder, *files) == 1
    assert "needs an id of its own and hyperpartisan=true or false" in capsys.readouterr().err


def test_any_lines_of_json(tmp_path, gpt2_folder, write_lines, capsys):
    train = write_lines(
        "train.jsonl",
        [
            {"text": "the theory", "label": "b c"},
            {"text": "document", "label": True, "id": "x"},
            {"text": "other", "label": 1, "id": 7},
            {"text": " ", "label": 1},
            {"text": "no label"},
            {"label": 1},
        ],
    )
    valid = write_lines("valid.jsonl", [{"text": "the", "label": 1}, {"text": "of", "label": "unknown"}])
    flags = ("--train", train, "--valid", valid, "--test", valid, "--max-reject-fraction", 0.6)
    assert convert(labelled_text, tmp_path / "data", gpt2_folder, *flags) == 0
    assert examples(tmp_path / "data", "train") == {
        "train.jsonl:1": ("the theory", "b c"),
        "x": ("document", "true"),
        "7": ("other", "1"),
    }
    assert examples(tmp_path / "data", "valid") == {"valid.jsonl:1": ("the", "1")}
    assert [label for _, label in examples(tmp_path / "data", "test").values()] == [None, None]
    assert "unknown label: 'unknown' is none of 1, b c, true" in (tmp_path / "data/valid.rejects.jsonl").read_text()
    one = write_lines("one.jsonl", [{"text": "the", "label": 1}])
    assert convert(labelled_text, tmp_path / "one", gpt2_folder, "--train", one) == 1
    assert "needs two labels or more, has 1: 1" in capsys.readouterr().err


def test_an_empty_id_is_a_reject(tmp_path, gpt2_folder):
    rows = [{"text": f"document {n}", "label": n % 2, "id": name} for n, name in enumerate(["a", "", " \n", "b"])]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ("--train", tmp_path / "train.jsonl", "--max-reject-fraction", 0.5)
    assert convert(labelled_text, tmp_path / "data", gpt2_folder, *options) == 0
    assert (tmp_path / "data" / "train.id.txt").read_text().split() == ["a", "b"]
    rejects = (tmp_path / "data" / "train.rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in rejects] == ["empty id"] * 2

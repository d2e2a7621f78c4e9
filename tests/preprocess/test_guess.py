"""What data are for, told by their columns."""

import json

import pytest

from preprocess.guess import guess
from preprocess.pipeline.records import InputError


def write(path, columns, count=12):
    rows = [{name: f"{name} {number}" for name in columns} for number in range(count)]
    for number, row in enumerate(rows):
        row.update(
            {"label": number % 2} if "label" in row else {},
            **({"answers": {"text": [], "answer_start": []}} if "answers" in row else {}),
        )
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("columns", "task", "options"),
    [
        (("article", "abstract"), "long_summarization", []),
        (("report", "summary"), "long_summarization", ["--article-key", "report"]),
        (("id", "pid", "input", "output"), "long_summarization", ["--article-key", "input", "--summary-key", "output"]),
        (("text", "label"), "document_classification", ["--text-key", "text", "--label-key", "label"]),
        (("premise", "hypothesis", "label"), "document_classification", ["--pair-key", "hypothesis"]),
        (("id", "title", "context", "question", "answers"), "triviaqa", []),
    ],
)
def test_columns_tell_the_task(tmp_path, columns, task, options):
    found = guess(write(tmp_path / "data.jsonl", columns), [])
    assert found.purpose.task == task
    assert set(options) <= set(found.purpose.columns)
    assert ("--article-key" in found.purpose.columns) == ("--article-key" in options)
    assert set(found.corpus.splits) == {"train"}
    assert set(found.used) >= set(columns) - {"pid", "title"}
    assert set(found.left_out) == {"pid"} & set(columns)


@pytest.mark.parametrize(
    ("row", "article", "summary"),
    [
        ({"Text": "a b", "Summary": "c"}, "a b", "c"),
        ({"content": "a b", "summary": "c"}, "a b", "c"),
        ({"prompt": "a b", "completion": "c"}, "a b", "c"),
        ({"instruction": "sum it up", "input": "a b", "output": "c"}, "sum it up\na b", "c"),
        ({"instruction": "sum it up", "output": "c"}, "sum it up", "c"),
        ({"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}, "a b", "c"),
    ],
)
def test_further_shapes_of_pairs_of_texts(tmp_path, row, article, summary):
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(row)] * 12))
    corpus = guess(str(tmp_path / "data.jsonl"), []).corpus
    example = corpus.parse(next(iter(corpus.splits["train"].records())))
    assert example.texts == (article, summary)


def test_several_meanings_are_listed(tmp_path):
    data = write(tmp_path / "data.jsonl", ("text", "summary", "label"))
    with pytest.raises(
        InputError, match=r"columns are text, summary, label.*--task summarization \(text to summary\) or"
    ):
        guess(data, [])
    assert guess(data, [], "classification").purpose.corpus == "labelled_text"
    assert guess(data, ["--summary-key", "summary"]).purpose.corpus == "arxiv_pubmed"


def test_unknown_columns_are_listed_and_flags_name_them(tmp_path):
    data = write(tmp_path / "data.jsonl", ("foo", "bar"))
    with pytest.raises(InputError, match="columns are foo, bar, which do not tell what to learn") as caught:
        guess(data, [])
    assert len(str(caught.value).split()) < 30
    found = guess(data, ["--article-key", "foo", "--summary-key", "bar"])
    assert (found.purpose.corpus, found.used) == ("arxiv_pubmed", ["foo", "bar"])
    with pytest.raises(InputError, match=r"--sumary-key: there is no such option; did you mean --summary-key"):
        guess(data, ["--article-key", "foo", "--summary-key", "bar", "--sumary-key", "bar"])
    with pytest.raises(InputError, match=r"--gpt2-bpe: is for data folders of fairseq"):
        guess(data, ["--article-key", "foo", "--summary-key", "bar", "--gpt2-bpe", "x"])


def test_splits_are_those_of_the_files(tmp_path):
    for name in ("train", "validation"):
        write(tmp_path / f"{name}.jsonl", ("article", "abstract"))
    assert set(guess(str(tmp_path), []).corpus.splits) == {"train", "valid"}
    found = guess(str(tmp_path / "train.jsonl"), ["--valid", str(tmp_path / "validation.jsonl")])
    assert set(found.corpus.splits) == {"train", "valid"}
    (tmp_path / "train.jsonl").rename(tmp_path / "mine.jsonl")
    (tmp_path / "validation.jsonl").rename(tmp_path / "test.jsonl")
    found = guess(str(tmp_path), [])
    assert {split: len(list(one.records())) for split, one in found.corpus.splits.items()} == {"train": 12, "test": 12}


def test_why_nothing_can_be_read(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"text,label\n" + "caf\xe9,1\n".encode("latin-1") * 12)
    with pytest.raises(
        InputError, match=r"data.csv, line 2: not UTF-8.*; convert Latin-1 with iconv -f LATIN1 -t UTF-8"
    ):
        guess(str(tmp_path / "data.csv"), [])


def test_no_data(tmp_path):
    with pytest.raises(InputError, match="no records with columns"):
        guess(write(tmp_path / "data.jsonl", ("article", "abstract"), 0), [])
    write(tmp_path / "test.jsonl", ("article", "abstract"))
    (tmp_path / "data.jsonl").unlink()
    with pytest.raises(InputError, match="only test in it, and nothing to train on"):
        guess(str(tmp_path), [])


def test_keys_inside_are_not_columns(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps({"rows": [{"article": f"a {n}", "tldr": "b"}]}) for n in range(12)))
    found = guess(str(path), ["--each", "rows", "--article-key", "article", "--summary-key", "tldr"])
    assert found.purpose.corpus == "arxiv_pubmed"


def test_a_column_that_names_splits_divides(tmp_path):
    rows = [{"text": f"a b {n}", "label": n % 2, "Split": ("train", "dev", "test")[n % 3]} for n in range(12)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = guess(str(tmp_path / "data.jsonl"), [])
    assert {split: len(list(records.records())) for split, records in found.corpus.splits.items()} == {
        "train": 4,
        "valid": 4,
        "test": 4,
    }
    assert found.used == ["text", "label", "Split"]

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from preprocess import arxiv_pubmed, labelled_text
from preprocess.pipeline.records import parsed
from tests.preprocess.conftest import convert

ROWS = [
    {"id": "a", "document": 'The "first" text, é 長; with a comma.', "summary": "One, é."},
    {"id": "b", "document": "The second text's line.", "summary": 'Two "quoted".'},
    {"id": "c", "document": "The third | text.", "summary": "Three."},
]
EXPECTED = [(row["document"], row["summary"]) for row in ROWS]


def lines(rows=ROWS):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(delimiter=",", rows=ROWS, header=True, **dialect):
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, **dialect)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def shape(contents, *arguments):
    """A shape of these files: a leading slash in the arguments names one; ``--train`` the first, if nothing does."""

    def write(folder):
        for name, content in contents.items():
            data = content() if callable(content) else content
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        words = [f"{folder}{word}" if word.startswith("/") else word for word in arguments]
        return words if words[:1] in (["--train"], ["--data"]) else ["--train", folder / next(iter(contents)), *words]

    return write


def zstd():
    return pytest.importorskip("zstandard").ZstdCompressor().compress(lines().encode())


def parquet(folder, name="train.parquet"):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(ROWS), folder / name, row_group_size=2)
    return ["--train", folder / name]


def arrow_file(folder, kind, name="train.arrow"):
    arrow = pytest.importorskip("pyarrow")
    made = arrow.Table.from_pylist(ROWS)
    make = {"file": arrow.ipc.new_file, "stream": arrow.ipc.new_stream}[kind]
    with make(str(folder / name), made.schema) as writer:
        writer.write_table(made, max_chunksize=2)
    return ["--train", folder / name]


def saved(folder):
    """As ``Dataset.save_to_disk`` writes."""
    arrow_file(folder, "stream", "data-00000-of-00001.arrow")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "x", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return ["--data", folder]


def saved_splits(folder):
    """As ``DatasetDict.save_to_disk`` writes."""
    for split in ("train", "validation"):
        (folder / split).mkdir()
        saved(folder / split)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    return ["--data", folder]


NESTED = [
    {
        **{"id": row["id"], "out": json.dumps({"summary": row["summary"], "name": "x"})},
        "article": {"sections": [{"text": part} for part in row["document"].split(" ")]},
    }
    for row in ROWS
]
TURNS = [{"who": "x", "content": "The"}, {"who": "y", "content": "text."}]
MEETING = [{"turns": TURNS, "queries": [{"query": f"Query {n}?", "answer": f"Answer {n}."} for n in range(3)]}]
SECTION = {"paragraphs": ["one"], "subsections": [{"paragraphs": ["two", "three"], "subsections": []}]}
REPORTS = [{"reports": SECTION, "summary": ["s", "t"]}]

SOURCE, TARGET = ("".join(f"{text}\n" for text in side) for side in zip(*EXPECTED, strict=True))
BY_ID = {row["id"]: {"document": row["document"], "summary": row["summary"]} for row in ROWS}

SHAPES = {
    "JSON lines": shape({"train.jsonl": lines()}),
    "JSON lines with a byte order mark and CRLF": shape({"train.json": "\ufeff" + lines().replace("\n", "\r\n")}),
    "a JSON array": shape({"train.json": json.dumps(ROWS)}),
    "a JSON array over several lines": shape({"train.txt": json.dumps(ROWS, indent=2)}),
    "an object with a list under data": shape({"train.json": json.dumps({"version": "1", "data": ROWS})}),
    "a list under another key": shape({"x.json": json.dumps({"rows": ROWS})}, "--records-key", "rows"),
    "an object of objects by id": shape({"x.json": json.dumps(BY_ID)}),
    "objects over several lines": shape({"x.json": "\n".join(json.dumps(row, indent=2) for row in ROWS)}),
    "an object a file": shape({f"d/{r['id']}.json": json.dumps(r, indent=1) for r in ROWS}, "--train", "/d/*.json"),
    "CSV": shape({"train.csv": table()}),
    "CSV with semicolons": shape({"train.csv": table(";")}),
    "CSV that tells Excel its separator": shape({"train.csv": "\ufeffsep=|\r\n" + table("|")}),
    "CSV without a header": shape({"x.csv": table(header=False)}, "--columns", "id", "document", "summary"),
    "CSV with other column names": shape(
        {"x.csv": table(rows=[{"k": "", "body": document, "tl.dr": summary} for document, summary in EXPECTED])},
        *("--article-key", "body", "--summary-key", "tl.dr"),
    ),
    "TSV": shape({"train.tsv": table("\t")}),
    "TSV whose quotation marks are text": shape(
        {"train.tsv": table("\t", quoting=csv.QUOTE_NONE, quotechar=None)}, "--no-quotes"
    ),
    "Parquet": parquet,
    "Arrow, its file format": lambda folder: arrow_file(folder, "file"),
    "Arrow, its stream format": lambda folder: arrow_file(folder, "stream", "train.feather"),
    "a folder that datasets saved": saved,
    "splits that datasets saved": saved_splits,
    "a folder of Parquet files": lambda folder: ["--data", Path(parquet(folder, "train-0-of-1.parquet")[1]).parent],
    "line pairs .src and .tgt": shape({"x.src": SOURCE, "x.tgt": TARGET}),
    "line pairs, the target named": shape({"x.src": SOURCE, "x.tgt": TARGET}, "--train", "/x.tgt"),
    "line pairs .source and .target, both named, gzip": shape(
        {"x.source.gz": gzip.compress(SOURCE.replace("\n", "\r\n").encode()), "x.target": TARGET[:-1]},
        *("--train", "/x.source.gz", "/x.target"),
    ),
    "texts and summaries in two folders": shape(
        {f"d/News Articles/in/{row['id']}.txt": row["document"] for row in ROWS}
        | {f"d/Summaries/in/{row['id']}.txt": row["summary"] for row in ROWS},
        *("--data", "/d"),
    ),
    "texts beside summaries": shape(
        {f"d/train/{row['id']}.txt": row["document"] for row in ROWS}
        | {f"d/train/{row['id']}.summary.txt": row["summary"] for row in ROWS},
        *("--data", "/d"),
    ),
    "gzip": shape({"train.jsonl.gz": gzip.compress(lines().encode())}),
    "bzip2": shape({"train.jsonl.bz2": bz2.compress(lines().encode())}),
    "xz": shape({"train.jsonl.xz": lzma.compress(lines().encode())}),
    "zstd": shape({"train.jsonl.zst": zstd}),
    "one JSON file with splits": shape(
        {"all.json": json.dumps({"version": 1, "train": ROWS, "validation": ROWS[:1]}, indent=1)}, "--data", "/all.json"
    ),
    "a folder whose files name splits": shape(
        {"d/my-train.jsonl": lines(), "d/my-dev.jsonl": lines(), "d/notes.md": "x"}, "--data", "/d"
    ),
    "a folder of folders that name splits": shape(
        {"d/train/part0": lines(ROWS[:1]), "d/train/part1": lines(ROWS[1:]), "d/val/x": lines()}, "--data", "/d"
    ),
    "nested objects and JSON inside a string": shape(
        {"x.jsonl": lines(NESTED)},
        *("--article-key", "article.sections.*.text", "--article-separator", " ", "--summary-key", "out.summary"),
    ),
    "a column that names the split": shape(
        {"x.csv": table(rows=[*({**r, "fold": "train"} for r in ROWS), {**ROWS[0], "fold": "dev"}])},
        *("--split-key", "fold"),
    ),
    "a list of the ids of splits": shape(
        {"x.jsonl": lines([*ROWS, {**ROWS[0], "id": "z"}]), "ids": "a train\nb train\nc train\nz valid\n"},
        *("--train", "/x.jsonl", "--splits", "/ids"),
    ),
}


def made(command, arguments):
    words = ["--gpt2-bpe", "unused", "--output-folder", "unused", *map(str, arguments)]
    return command.make_corpus(command.make_parser().parse_args(words))


def read(command, arguments, split="train"):
    """The examples of a split, and the other splits."""
    corpus = made(command, arguments)
    return examples_of(corpus, split), corpus.splits.keys() - {split}


def examples_of(corpus, split="train"):
    parse = corpus.splits[split].parse or corpus.parse
    return [parsed(record, parse) for record in corpus.splits[split].records()]


class Letters:
    """A tokenizer whose tokens are letters."""

    encode = staticmethod(lambda text: np.array(list(map(ord, text))))


@pytest.mark.parametrize("name", SHAPES)
def test_summaries(name, tmp_path):
    examples, others = read(arxiv_pubmed, SHAPES[name](tmp_path))
    assert [example.texts for example in examples] == EXPECTED, examples
    if not any(word in name for word in ("pairs", "other column")):
        assert [example.id.rpartition("/")[2] for example in examples] == ["a", "b", "c"]
    assert (others == {"valid"}) == any(word in name for word in ("split", "in two folders of")), others


@pytest.mark.parametrize(
    "name",
    [
        *("CSV", "one JSON file with splits", "Parquet", "splits that datasets saved"),
        *("texts and summaries in two folders", "a list of the ids of splits"),
    ],
)
def test_the_data_folder_is_that_of_json_lines(name, tmp_path):
    """From the command line, with two workers; a report, too."""

    def files_of(folder, write):
        (tmp_path / folder).mkdir()
        flags = ["--workers", 2, "--report", *write(tmp_path / folder)]
        assert convert(arxiv_pubmed, tmp_path / folder / "data", *flags) == 0
        files = (tmp_path / folder / "data").glob("train.*")
        return {file.name: file.read_bytes() for file in files if file.name != "train.id.txt"}

    expected, data = files_of("plain", SHAPES["JSON lines"]), files_of("shape", SHAPES[name])
    assert data == expected
    assert len(data) == 6
    assert "findings" not in (tmp_path / "plain" / "data" / "report.txt").read_text()


@pytest.mark.parametrize(
    ("rows", "flags", "texts"),
    [
        (  # QMSum's form: the query comes before the transcript
            MEETING,
            ["--each", "queries", "--article-key", "query+turns.*.content", "--summary-key", "answer"],
            [(f"Query {n}?\nThe\ntext.", f"Answer {n}.") for n in range(3)],
        ),
        (REPORTS, ["--article-key", "reports.*.paragraphs"], [("one\ntwo\nthree", "s t")]),  # GovReport's
    ],
)
def test_nested_records(tmp_path, rows, flags, texts):
    (tmp_path / "x.jsonl").write_text(lines(rows))
    examples, _ = read(arxiv_pubmed, ["--train", tmp_path / "x.jsonl", *flags])
    assert [example.texts for example in examples] == texts
    assert len({example.id for example in examples}) == len(texts)


def test_queries_about_one_meeting_are_in_one_split(tmp_path):
    rows = [{"id": f"m{n}", "text": "x", "queries": [{"answer": "a"}, {"answer": "b"}]} for n in range(40)]
    (tmp_path / "x.jsonl").write_text(lines(rows))
    options = ["--train", tmp_path / "x.jsonl", "--each", "queries", "--summary-key", "answer", "--valid-share", 0.3]
    splits = {split: read(arxiv_pubmed, options, split)[0] for split in ("train", "valid")}
    meetings = {split: {example.id.partition("-")[0] for example in examples} for split, examples in splits.items()}
    assert not meetings["train"] & meetings["valid"]
    assert sum(map(len, splits.values())) == 80
    assert 3 < len(meetings["valid"]) < 25


LABELLED = [{"text": "one, two", "label": "x"}, {"text": "three", "label": "y"}]
LABEL_SHAPES = {
    "JSON lines": shape({"x.jsonl": lines(LABELLED)}),
    "whole numbers": shape({"x.json": json.dumps([{**LABELLED[n], "label": n} for n in (0, 1)])}, "--labels", "0", "1"),
    "CSV with other names": shape(
        {"x.csv": table(rows=[{"body": row["text"], "class": row["label"]} for row in LABELLED])},
        *("--text-key", "body", "--label-key", "class"),
    ),
    "a list with one label": shape({"x.jsonl": lines([{**row, "label": [row["label"]]} for row in LABELLED])}),
    "a folder for each label": shape({"d/x/1.txt": "one, two", "d/y/1.txt": "three"}, "--data", "/d"),
    "several keys, nested": shape(
        {"x.jsonl": lines([{"a": {"t": row["text"]}, "m": {"l": row["label"]}} for row in LABELLED])},
        *("--text-key", "a.t", "--label-key", "m.l"),
    ),
}


@pytest.mark.parametrize("name", LABEL_SHAPES)
def test_labels(name, tmp_path):
    examples, _ = read(labelled_text, LABEL_SHAPES[name](tmp_path))
    assert [example.texts for example in examples] == [("one, two",), ("three",)], examples
    assert [example.label for example in examples] == (["0", "1"] if name == "whole numbers" else ["x", "y"])


@pytest.mark.parametrize("content", ["CSV", "JSON"])
def test_amounts_are_a_regression(content, tmp_path):
    rows = [{"text": "a", "label": value} for value in (0.5, 2, -1e-3)]
    (tmp_path / "x").write_text(table(rows=rows, delimiter="\t") if content == "CSV" else lines(rows))
    corpus = made(labelled_text, ["--train", tmp_path / "x"])
    assert corpus.entries["problem_type"] == "regression"
    encoded = [corpus.encode(Letters(), example).arrays["label"] for example in examples_of(corpus)]
    assert np.concatenate(encoded).astype(np.int32).view(np.float32).tolist() == [np.float32(x["label"]) for x in rows]


def test_lists_are_several_labels(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        lines([*LABELLED, {"text": "z", "label": ["y", "x", "y"]}, {"text": "o", "label": []}])
    )
    corpus = made(labelled_text, ["--train", tmp_path / "x.jsonl"])
    assert (corpus.entries["problem_type"], corpus.entries["labels"]) == ("multi_label_classification", ["x", "y"])
    encoded = [corpus.encode(Letters(), example).arrays["label"].tolist() for example in examples_of(corpus)]
    assert encoded == [[1, 0], [0, 1], [1, 1], [0, 0]]
    corpus = made(labelled_text, ["--train", tmp_path / "x.jsonl", "--problem-type", "single_label_classification"])
    reason = [corpus.encode(Letters(), example) for example in examples_of(corpus)][2].reason
    assert reason == "several labels, and --problem-type is single_label_classification: 'y, x'"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("1.0", "2.0"), "labels such as 1.0, 2.0 may be classes or amounts; say --problem-type single_label_"),
        (map("t{}".format, range(1001)), "more than 1,000 labels, such as t0, t1, t10, which are texts or amounts"),
    ],
)
def test_labels_of_which_nothing_says_what_they_are(labels, message, tmp_path):
    (tmp_path / "x.tsv").write_text(table(rows=[{"text": "a", "label": label} for label in labels], delimiter="\t"))
    with pytest.raises(ValueError, match=message):
        made(labelled_text, ["--train", tmp_path / "x.tsv"])
    (tmp_path / "x.csv").write_text(table(rows=[{"text": "a", "other": 1}]))  # without labels: predicted only
    examples, _ = read(labelled_text, ["--test", tmp_path / "x.csv", "--labels", "x", "y"], "test")
    assert [(example.texts, example.label) for example in examples] == [(("a",), None)]


def test_names_on_the_hub(tmp_path, monkeypatch):
    class Missing(Exception):
        pass

    def load_dataset(path, configuration):
        if path != "someone/papers":
            raise Missing(f"Dataset {path!r} doesn't exist on the Hub")
        return {"train": ROWS if configuration == "long" else ROWS[:1], "validation": ROWS[:2], "test": ROWS[2:]}

    module = types.SimpleNamespace(load_dataset=load_dataset, exceptions=types.SimpleNamespace(DatasetsError=Missing))
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.chdir(tmp_path)
    examples, others = read(arxiv_pubmed, ["--data", "someone/papers:long"])
    assert [example.texts for example in examples] == EXPECTED
    assert others == {"valid", "test"}
    assert len(read(arxiv_pubmed, ["--data", "someone/papers"])[0]) == 1
    with pytest.raises(ValueError, match=r"no/such: no such file, and datasets cannot load it.*doesn't exist"):
        read(arxiv_pubmed, ["--data", "no/such"])
    (tmp_path / "someone").mkdir()  # a folder of that name: the second part is mistyped
    with pytest.raises(ValueError, match=r"^someone/papers: no such file$"):
        read(arxiv_pubmed, ["--data", "someone/papers"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"papers: no such file or folder. If it is a data set .*: pip install"):
        read(arxiv_pubmed, ["--data", "papers"])


@pytest.mark.parametrize(
    ("module", "name", "data", "kind"),
    [
        ("pyarrow", "x.parquet", b"PAR1", "a Parquet file"),
        ("pyarrow", "x.arrow", b"ARROW1", "an Arrow file"),
        ("zstandard", "x.zst", b"\x28\xb5\x2f\xfd", "a zstd file"),
    ],
)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="has zstd of its own")
def test_a_missing_package_is_named(module, name, data, kind, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name}: is {kind}, which needs the package {module}: pip install"):
        read(arxiv_pubmed, ["--train", tmp_path / name])

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

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


SECTIONS = [
    {**row, "document": [{"heading": "H", "text": row["document"]}, {"heading": "H", "paragraphs": ["x  y", "z"]}]}
    for row in ROWS
]

SOURCE, TARGET = ("".join(f"{text}\n" for text in side) for side in zip(*EXPECTED, strict=True))

SHAPES = {
    "JSON lines": shape({"train.jsonl": lines()}),
    "JSON lines with a byte order mark and CRLF": shape({"train.json": "\ufeff" + lines().replace("\n", "\r\n")}),
    "a JSON array": shape({"train.json": json.dumps(ROWS)}),
    "a JSON array over several lines": shape({"train.txt": json.dumps(ROWS, indent=2)}),
    "an object with one list of records": shape({"train.json": json.dumps({"tags": ["x"], "rows": ROWS, "n": {}})}),
    "CSV": shape({"train.csv": table()}),
    "CSV with semicolons": shape({"train.csv": table(";")}),
    "CSV that tells Excel its separator": shape({"train.csv": "\ufeffsep=|\r\n" + table("|")}),
    "CSV with other column names": shape(
        {"x.csv": table(rows=[{"k": "", "body": document, "tl.dr": summary} for document, summary in EXPECTED])},
        *("--article-key", "body", "--summary-key", "tl.dr"),
    ),
    "TSV": shape({"train.tsv": table("\t")}),
    "Parquet": parquet,
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
    "a folder whose files name splits": shape(
        {"d/my-train.jsonl": lines(), "d/my-dev.jsonl": lines(), "d/notes.md": "x"}, "--data", "/d"
    ),
    "a folder of folders that name splits": shape(
        {"d/train/part0": lines(ROWS[:1]), "d/train/part1": lines(ROWS[1:]), "d/val/x": lines()}, "--data", "/d"
    ),
    "nested objects": shape(
        {"x.jsonl": lines([{"id": r["id"], "paper": {"body": r["document"], "tldr": r["summary"]}} for r in ROWS])},
        *("--article-key", "paper.body", "--summary-key", "paper.tldr"),
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
        *("CSV", "a folder whose files name splits", "Parquet", "texts and summaries in two folders"),
        "a list of the ids of splits",
    ],
)
def test_the_data_folder_is_that_of_json_lines(name, tmp_path):
    """From the command line, with two workers."""

    def files_of(folder, write):
        (tmp_path / folder).mkdir()
        flags = ["--workers", 2, *write(tmp_path / folder)]
        assert convert(arxiv_pubmed, tmp_path / folder / "data", *flags) == 0
        files = (tmp_path / folder / "data").glob("train.*")
        return {file.name: file.read_bytes() for file in files if file.name != "train.id.txt"}

    expected, data = files_of("plain", SHAPES["JSON lines"]), files_of("shape", SHAPES[name])
    assert data == expected
    assert len(data) == 6


def test_sections_and_their_headings(tmp_path):
    expected = [(f"H\n{document}\nx y\nz", summary) for document, summary in EXPECTED]
    rows = ",\n".join(map(json.dumps, SECTIONS))
    for text in (json.dumps({"papers": SECTIONS}, indent=1), f'{{"papers": [\n{rows}]}}', f"[{rows}\n]"):
        (tmp_path / "x.json").write_text(text)
        examples, _ = read(arxiv_pubmed, ["--train", tmp_path / "x.json"])
        assert [example.texts for example in examples] == expected


def test_queries_about_one_meeting_are_in_one_split(tmp_path):
    """As equal documents are, whatever their ids, case and blanks."""
    texts = [f"Meeting {n}" for n in range(40)]
    queries = [
        {"id": f"{n}-{k}", "query": f"What {k}?", "text": form, "summary": "a"}
        for n, text in enumerate(texts)
        for k, form in enumerate((text, text.upper(), text.replace(" ", "  ")))
    ]
    (tmp_path / "x.jsonl").write_text(lines(queries))
    options = ["--train", tmp_path / "x.jsonl", "--query-key", "query", "--valid-share", 0.3]
    splits = {split: read(arxiv_pubmed, options, split)[0] for split in ("train", "valid")}
    meetings = {split: {example.id.partition("-")[0] for example in examples} for split, examples in splits.items()}
    assert not meetings["train"] & meetings["valid"]
    assert sum(map(len, splits.values())) == 120
    assert 3 < len(meetings["valid"]) < 25


LABELLED = [{"text": "one, two", "label": "x"}, {"text": "three", "label": "y"}]
LABEL_SHAPES = {
    "JSON lines": shape({"x.jsonl": lines(LABELLED)}),
    "whole numbers": shape({"x.json": json.dumps([{**LABELLED[n], "label": [0, 1.0][n]} for n in (0, 1)])}),
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


def test_labels_that_are_texts_or_amounts_and_files_without_labels(tmp_path):
    rows = [{"text": "a", "label": f"t{number}"} for number in range(1001)]
    (tmp_path / "x.tsv").write_text(table(rows=rows, delimiter="\t"))
    with pytest.raises(ValueError, match=r"more than 1,000 labels, such as t0, t1, t10, which are texts or amounts"):
        made(labelled_text, ["--train", tmp_path / "x.tsv"])
    (tmp_path / "x.csv").write_text(table(rows=[{"text": "a", "other": 1}]))  # predicted only
    examples, _ = read(labelled_text, ["--test", tmp_path / "x.csv", "--labels", "x", "y"], "test")
    assert [(example.texts, example.label) for example in examples] == [(("a",), None)]


def test_labels_of_parquet_have_their_names(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["x", "y"]}, "text": {"_type": "Value"}}}}
    rows = [{"text": "a", "label": number} for number in (1, 0, -1)]
    rows = arrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(info)})
    pytest.importorskip("pyarrow.parquet").write_table(rows, tmp_path / "train.parquet")
    *examples, reject = read(labelled_text, ["--train", tmp_path / "train.parquet"])[0]
    assert [example.label for example in examples] == ["y", "x"]
    assert reject.reason.startswith("no label: the line lacks label")


@pytest.mark.parametrize(
    ("module", "name", "data", "kind"),
    [("pyarrow", "x.parquet", b"PAR1", "a Parquet file"), ("zstandard", "x.zst", b"\x28\xb5\x2f\xfd", "a zstd file")],
)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="has zstd of its own")
def test_a_missing_package_is_named(module, name, data, kind, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name}: is {kind}, which needs the package {module}: pip install"):
        read(arxiv_pubmed, ["--train", tmp_path / name])

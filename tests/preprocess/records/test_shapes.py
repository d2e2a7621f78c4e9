"""The shapes in which people have summaries, labels and questions: each gives the same records."""

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

from preprocess import arxiv_pubmed, labelled_text, squad
from preprocess.pipeline.records import parsed

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


def file(name, content):
    """A shape that is one file."""

    def write(folder):
        data = content() if callable(content) else content
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return ["--train", folder / name]

    return write


def files(contents, arguments):
    """A shape of several files; arguments name those of the folder by a leading slash."""

    def write(folder):
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return [f"{folder}{word}" if word.startswith("/") else word for word in arguments]

    return write


def with_keys(shape, *options):
    return lambda folder: [*shape(folder), *options]


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
        "id": row["id"],
        "article": {"sections": [{"text": part} for part in row["document"].split(" ")]},
        "out": json.dumps({"summary": row["summary"], "name": "x"}),
    }
    for row in ROWS
]
MEETING = [
    {
        "turns": [{"who": "x", "content": "The"}, {"who": "y", "content": "text."}],
        "queries": [{"query": f"Query {n}?", "answer": f"Answer {n}."} for n in range(3)],
    }
]
SECTION = {"paragraphs": ["one"], "subsections": [{"paragraphs": ["two", "three"], "subsections": []}]}
REPORTS = [{"reports": SECTION, "summary": ["s", "t"]}]

SHAPES = {
    "JSON lines": file("train.jsonl", lines()),
    "JSON lines with a byte order mark and CRLF": file("train.json", "\ufeff" + lines().replace("\n", "\r\n")),
    "a JSON array": file("train.json", json.dumps(ROWS)),
    "a JSON array over several lines": file("train.txt", json.dumps(ROWS, indent=2)),
    "an object with a list under data": file("train.json", json.dumps({"version": "1", "data": ROWS})),
    "a list under another key": with_keys(file("x.json", json.dumps({"rows": ROWS})), "--records-key", "rows"),
    "an object of objects by id": file(
        "x.json", json.dumps({row["id"]: {"document": row["document"], "summary": row["summary"]} for row in ROWS})
    ),
    "objects over several lines": file("x.json", "\n".join(json.dumps(row, indent=2) for row in ROWS)),
    "a folder of one object a file": with_keys(
        files({f"d/{row['id']}.json": json.dumps(row, indent=1) for row in ROWS}, ["--train", "/d/*.json"])
    ),
    "CSV": file("train.csv", table()),
    "CSV with semicolons": file("train.csv", table(";")),
    "CSV that tells Excel its separator": file("train.csv", "\ufeffsep=|\r\n" + table("|")),
    "CSV without a header": with_keys(file("x.csv", table(header=False)), "--columns", "id", "document", "summary"),
    "CSV with other column names": with_keys(
        file("x.csv", table(rows=[{"k": "", "body": r["document"], "tl.dr": r["summary"]} for r in ROWS])),
        *("--article-key", "body", "--summary-key", "tl.dr"),
    ),
    "TSV": file("train.tsv", table("\t")),
    "TSV whose quotation marks are text": with_keys(
        file("train.tsv", table("\t", quoting=csv.QUOTE_NONE, quotechar=None)), "--no-quotes"
    ),
    "Parquet": parquet,
    "Arrow, its file format": lambda folder: arrow_file(folder, "file"),
    "Arrow, its stream format": lambda folder: arrow_file(folder, "stream", "train.feather"),
    "a folder that datasets saved": saved,
    "splits that datasets saved": saved_splits,
    "a folder of Parquet files": lambda folder: ["--data", Path(parquet(folder, "train-0-of-1.parquet")[1]).parent],
    "line pairs .src and .tgt": files(
        {"x.src": "".join(f"{d}\n" for d, _ in EXPECTED), "x.tgt": "".join(f"{s}\n" for _, s in EXPECTED)},
        ["--train", "/x.src"],
    ),
    "line pairs, the target named": files(
        {"x.src": "".join(f"{d}\n" for d, _ in EXPECTED), "x.tgt": "".join(f"{s}\n" for _, s in EXPECTED)},
        ["--train", "/x.tgt"],
    ),
    "line pairs .source and .target, both named, gzip": files(
        {
            "x.source.gz": gzip.compress("".join(f"{d}\r\n" for d, _ in EXPECTED).encode()),
            "x.target": "\n".join(s for _, s in EXPECTED),
        },
        ["--train", "/x.source.gz", "/x.target"],
    ),
    "texts and summaries in two folders": files(
        {
            **{f"d/News Articles/in/{row['id']}.txt": row["document"] for row in ROWS},
            **{f"d/Summaries/in/{row['id']}.txt": row["summary"] for row in ROWS},
        },
        ["--data", "/d"],
    ),
    "texts beside summaries": files(
        {
            **{f"d/train/{row['id']}.txt": row["document"] for row in ROWS},
            **{f"d/train/{row['id']}.summary.txt": row["summary"] for row in ROWS},
        },
        ["--data", "/d"],
    ),
    "gzip": file("train.jsonl.gz", gzip.compress(lines().encode())),
    "bzip2": file("train.jsonl.bz2", bz2.compress(lines().encode())),
    "xz": file("train.jsonl.xz", lzma.compress(lines().encode())),
    "zstd": file("train.jsonl.zst", zstd),
    "one JSON file with splits": files(
        {"all.json": json.dumps({"version": 1, "train": ROWS, "validation": ROWS[:1]}, indent=1)},
        ["--data", "/all.json"],
    ),
    "a folder whose files name splits": files(
        {"d/my-train.jsonl": lines(), "d/my-dev.jsonl": lines(), "d/notes.md": "x"}, ["--data", "/d"]
    ),
    "a folder of folders that name splits": files(
        {"d/train/part0": lines(ROWS[:1]), "d/train/part1": lines(ROWS[1:]), "d/val/x": lines()}, ["--data", "/d"]
    ),
    "nested objects and JSON inside a string": with_keys(
        file("x.jsonl", lines(NESTED)),
        *("--article-key", "article.sections.*.text", "--article-separator", " ", "--summary-key", "out.summary"),
    ),
    "a column that names the split": with_keys(
        file("x.csv", table(rows=[*({**r, "fold": "train"} for r in ROWS), {**ROWS[0], "fold": "dev"}])),
        *("--split-key", "fold"),
    ),
    "a list of the ids of splits": files(
        {"x.jsonl": lines([*ROWS, {**ROWS[0], "id": "z"}]), "ids": "a train\nb train\nc train\nz valid\n"},
        ["--train", "/x.jsonl", "--splits", "/ids"],
    ),
}


def found(command, arguments, split="train"):
    """The examples of a split, and the other splits."""
    corpus = made(command, arguments)
    return examples_of(corpus, split), corpus.splits.keys() - {split}


def made(command, arguments):
    words = ["--gpt2-bpe", "unused", "--output-folder", "unused", *map(str, arguments)]
    return command.make_corpus(command.make_parser().parse_args(words))


def examples_of(corpus, split="train"):
    parse = corpus.splits[split].parse or corpus.parse
    return [parsed(record, parse) for record in corpus.splits[split].records()]


class Letters:
    """A tokenizer whose tokens are letters."""

    encode = staticmethod(lambda text: np.array(list(map(ord, text))))


@pytest.mark.parametrize("shape", SHAPES)
def test_summaries(shape, tmp_path):
    examples, others = found(arxiv_pubmed, SHAPES[shape](tmp_path))
    assert [example.texts for example in examples] == EXPECTED, examples
    if not any(word in shape for word in ("pairs", "other column")):
        assert [example.id.rpartition("/")[2] for example in examples] == ["a", "b", "c"]
    assert (others == {"valid"}) == any(word in shape for word in ("split", "in two folders of")), others


END_TO_END = [
    "CSV",
    "one JSON file with splits",
    "Parquet",
    "splits that datasets saved",
    "texts and summaries in two folders",
]


@pytest.mark.parametrize("shape", [*END_TO_END, "a list of the ids of splits"])
def test_the_data_folder_is_that_of_json_lines(shape, tmp_path, gpt2_folder):
    """From the command line, with two workers; a report, too."""

    def made(name, arguments):
        words = ["--gpt2-bpe", gpt2_folder, "--output-folder", tmp_path / name, "--workers", 2, "--report", *arguments]
        assert arxiv_pubmed.main(list(map(str, words))) == 0
        return {
            file.name: file.read_bytes() for file in (tmp_path / name).glob("train.*") if file.name != "train.id.txt"
        }

    (tmp_path / "plain").mkdir()
    (tmp_path / "shape").mkdir()
    expected = made("first", file("train.jsonl", lines())(tmp_path / "plain"))
    found = made("second", SHAPES[shape](tmp_path / "shape"))
    assert found == expected
    assert len(found) == 6
    assert "findings" not in (tmp_path / "first" / "report.txt").read_text()


def test_queries_about_a_meeting_are_examples(tmp_path):
    """QMSum's form: the query comes before the transcript."""
    (tmp_path / "x.jsonl").write_text(lines(MEETING))
    keys = ["--each", "queries", "--article-key", "query+turns.*.content", "--summary-key", "answer"]
    examples, _ = found(arxiv_pubmed, ["--train", tmp_path / "x.jsonl", *keys])
    assert [example.texts for example in examples] == [(f"Query {n}?\nThe\ntext.", f"Answer {n}.") for n in range(3)]
    assert len({example.id for example in examples}) == 3


def test_queries_about_one_meeting_are_in_one_split(tmp_path):
    rows = [{"id": f"m{n}", "text": "x", "queries": [{"answer": "a"}, {"answer": "b"}]} for n in range(40)]
    (tmp_path / "x.jsonl").write_text(lines(rows))
    options = ["--train", tmp_path / "x.jsonl", "--each", "queries", "--summary-key", "answer", "--valid-share", 0.3]
    splits = {split: found(arxiv_pubmed, options, split)[0] for split in ("train", "valid")}
    meetings = {split: {example.id.partition("-")[0] for example in examples} for split, examples in splits.items()}
    assert not meetings["train"] & meetings["valid"]
    assert sum(map(len, splits.values())) == 80
    assert 3 < len(meetings["valid"]) < 25


def test_nested_sections(tmp_path):
    """GovReport's."""
    (tmp_path / "x.jsonl").write_text(lines(REPORTS))
    examples, _ = found(arxiv_pubmed, ["--train", tmp_path / "x.jsonl", "--article-key", "reports.*.paragraphs"])
    assert [example.texts for example in examples] == [("one\ntwo\nthree", "s t")]


LABELLED = [{"text": "one, two", "label": "x"}, {"text": "three", "label": "y"}]
LABEL_SHAPES = {
    "JSON lines": file("x.jsonl", lines(LABELLED)),
    "whole numbers": with_keys(
        file("x.json", json.dumps([{"text": r["text"], "label": n} for n, r in enumerate(LABELLED)])),
        "--labels",
        "0",
        "1",
    ),
    "CSV with other names": with_keys(
        file("x.csv", table(rows=[{"body": r["text"], "class": r["label"]} for r in LABELLED])),
        *("--text-key", "body", "--label-key", "class"),
    ),
    "a list with one label": file("x.jsonl", lines([{**row, "label": [row["label"]]} for row in LABELLED])),
    "a folder for each label": files({"d/x/1.txt": "one, two", "d/y/1.txt": "three"}, ["--data", "/d"]),
    "several keys, nested": with_keys(
        file("x.jsonl", lines([{"a": {"t": r["text"]}, "m": {"l": r["label"]}} for r in LABELLED])),
        *("--text-key", "a.t", "--label-key", "m.l"),
    ),
}


@pytest.mark.parametrize("shape", LABEL_SHAPES)
def test_labels(shape, tmp_path):
    examples, _ = found(labelled_text, LABEL_SHAPES[shape](tmp_path))
    assert [example.texts for example in examples] == [("one, two",), ("three",)], examples
    labels = [example.label for example in examples]
    assert labels == (["0", "1"] if shape == "whole numbers" else ["x", "y"])


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
        (
            ("1.0", "2.0"),
            "labels such as 1.0, 2.0 may be classes or amounts; say --problem-type single_label_classific",
        ),
        (map("t{}".format, range(1001)), "more than 1,000 labels, such as t0, t1, t10, which are texts or amounts"),
    ],
)
def test_labels_of_which_nothing_says_what_they_are(labels, message, tmp_path):
    (tmp_path / "x.tsv").write_text(table(rows=[{"text": "a", "label": label} for label in labels], delimiter="\t"))
    with pytest.raises(ValueError, match=message):
        made(labelled_text, ["--train", tmp_path / "x.tsv"])


def test_text_without_labels_is_predicted_only(tmp_path):
    (tmp_path / "x.csv").write_text(table(rows=[{"text": "a", "other": 1}]))
    examples, _ = found(labelled_text, ["--test", tmp_path / "x.csv", "--labels", "x", "y"], "test")
    assert [(example.texts, example.label) for example in examples] == [(("a",), None)]


QAS = [
    {
        "id": "q1",
        "question": "Who?",
        "answers": [{"text": "Ann", "answer_start": 0}, {"text": "Ann", "answer_start": 8}],
    },
    {"id": "q2", "question": "When?", "answers": [], "is_impossible": True},
]
ARTICLES = {"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": "Ann saw Ann.", "qas": QAS}]}]}
HUB_ROWS = [
    {
        **{"id": qa["id"], "title": "T", "context": "Ann saw Ann.", "question": qa["question"]},
        "answers": {key: [answer[key] for answer in qa["answers"]] for key in ("text", "answer_start")},
    }
    for qa in QAS
]


@pytest.mark.parametrize("content", [json.dumps(ARTICLES), json.dumps(ARTICLES, indent=1), lines(HUB_ROWS)])
def test_questions_about_contexts(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    examples, _ = found(squad, ["--train", tmp_path / "x.json"])
    assert [(json.loads(example.id), example.texts, example.answers, example.notes) for example in examples] == [
        (["q1", "T"], ("Who?", "Ann saw Ann."), ((0, 3), (8, 11)), ()),
        (["q2", "T"], ("When?", "Ann saw Ann."), (), (squad.NO_ANSWER,)),
    ]


def test_names_on_the_hub(tmp_path, monkeypatch):
    """By ``datasets`` itself; no network here."""

    class Missing(Exception):
        pass

    def load_dataset(path, configuration):
        if path != "someone/papers":
            raise Missing(f"Dataset {path!r} doesn't exist on the Hub")
        return {"train": ROWS if configuration == "long" else ROWS[:1], "validation": ROWS[:2], "test": ROWS[2:]}

    module = types.SimpleNamespace(load_dataset=load_dataset, exceptions=types.SimpleNamespace(DatasetsError=Missing))
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.chdir(tmp_path)
    examples, others = found(arxiv_pubmed, ["--data", "someone/papers:long"])
    assert [example.texts for example in examples] == EXPECTED
    assert others == {"valid", "test"}
    assert len(found(arxiv_pubmed, ["--data", "someone/papers"])[0]) == 1
    with pytest.raises(ValueError, match=r"no/such: no such file, and datasets cannot load it.*doesn't exist"):
        found(arxiv_pubmed, ["--data", "no/such"])
    (tmp_path / "someone").mkdir()  # a folder of that name: the second part is mistyped
    with pytest.raises(ValueError, match=r"^someone/papers: no such file$"):
        found(arxiv_pubmed, ["--data", "someone/papers"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"papers: no such file or folder. If it is a data set .*: pip install"):
        found(arxiv_pubmed, ["--data", "papers"])


@pytest.mark.parametrize(
    ("module", "name", "data", "message"),
    [
        (
            "pyarrow",
            "x.parquet",
            b"PAR1",
            "x.parquet: is a Parquet file, which needs the package pyarrow: pip",
        ),
        ("pyarrow", "x.arrow", b"ARROW1", "x.arrow: is an Arrow file, which needs the package pyarrow: pip install"),
        ("zstandard", "x.zst", b"\x28\xb5\x2f\xfd", "is a zstd file, which needs the package zstandard: pip install"),
    ],
)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="has zstd of its own")
def test_a_missing_package_is_named(module, name, data, message, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        found(arxiv_pubmed, ["--train", tmp_path / name])

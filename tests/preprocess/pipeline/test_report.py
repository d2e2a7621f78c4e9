import json
import re

import numpy as np
import pytest

from fairseq_poolingformer.tasks.classification.data import ClassificationSplit
from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.sequences import SequencesWriter
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import labelled_text
from preprocess.pipeline import parts
from preprocess.pipeline.report import Made, length_table
from tests import lab
from tests.preprocess import conftest


def test_a_table_by_hand(tmp_path):
    """Texts of n tokens are stored with </s> and truncated at n + 1 tokens, since training adds <s> and </s>."""
    folder = DataFolder(tmp_path, PAIRS)
    lengths = {"train": ([10, 20, 30], [1, 2, 3]), "valid": ([8], [5])}
    for split, sides in lengths.items():
        for array, sizes in zip(PAIRS.ids, sides, strict=True):
            with SequencesWriter(folder.array_path(split, array), np.uint16) as writer:
                for size in sizes:
                    writer.append(np.full(size + 1, 7))
    table = length_table(Made(folder, "toy", ["train", "valid"], (21, 22), {"train": 4, "valid": 0}))
    rows = [line.split("  ") for line in table.split("\n")]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["toy", "examples", "input median", "90th", "output median", "90th", "input > 21", "input > 22", "rejected"],
        ["train", "3", "20", "28", "2", "3", "2 (66.7 %)", "1 (33.3 %)", "4"],
        ["valid", "1", "8", "8", "5", "5", "0 (0.0 %)", "0 (0.0 %)", "0"],
        ["all", "4", "15", "27", "2", "4", "2 (50.0 %)", "1 (25.0 %)", "4"],
    ]
    alone = length_table(Made(folder, "toy", ["train"], (21,), {"train": 0})).split("\n")
    assert [line.split()[0] for line in alone] == ["toy", "train"]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 1)


def lines_of(documents):
    return [{"id": name, "article": text, "abstract": f"summary {name}"} for name, text in documents.items()]


TRAIN = {f"t{number}": f"document number {number}" for number in range(10)}


def test_the_same_file_twice_is_said_before_and_after(command, tmp_path, write_lines, capsys, small_parts):
    train = write_lines("train.jsonl", lines_of(TRAIN))
    copy = write_lines("copy.jsonl", lines_of(TRAIN))
    assert command(tmp_path / "out", "--train", train, "--valid", copy) == 0
    output = capsys.readouterr()
    line = "valid: 10 of 10 documents are in train, too, such as t0 (train: t0), t1 (train: t1), t2 (train: t2)"
    assert line in output.out.splitlines()
    assert f"WARNING: {line}" in output.err
    assert "WARNING: train and valid are made of the same file: copy.jsonl" in output.err
    assert json.loads((tmp_path / "out" / "corpus.json").read_text())["warnings"] == [line]
    assert command(tmp_path / "out", "--train", train, "--valid", copy) == 0  # up to date
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_documents_are_compared_as_they_are_used(workers, command, tmp_path, write_lines, capsys, small_parts):
    """Another summary is the same document; a document that a limit leaves out is not in a split."""
    train = write_lines("train.jsonl", lines_of(TRAIN))
    valid = write_lines("valid.jsonl", lines_of({"v0": "other", "v1": TRAIN["t7"], "v2": TRAIN["t3"] + " "}))
    test = write_lines("test.jsonl", lines_of({"e0": "other", "e1": TRAIN["t9"]}))
    files = ["--train", train, "--valid", valid, "--test", test, "--workers", workers]
    assert command(tmp_path / "all", *files) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "valid: 2 of 3 documents are in train, too, such as v1 (train: t7), v2 (train: t3)",
        "test: 1 of 2 documents are in train, too, such as e1 (train: t9)",
        "test: 1 of 2 documents are in valid, too, such as e0 (valid: v0)",
    ]
    assert command(tmp_path / "few", *files, "--limit", "5") == 0
    shared = [line for line in capsys.readouterr().out.splitlines() if "in train, too" in line]
    assert shared == ["valid: 1 of 3 documents are in train, too, such as v2 (train: t3)"]


TEXTS = ["the theory\n\nof the\r\nlong\tdocument", "attention\n", "café the"]
ROWS = [{"text": text, "label": number % 2} for number, text in enumerate(TEXTS)]


@pytest.fixture
def vocabulary(gpt2_folder, tmp_path):
    """GPT-2's files with a dictionary like RoBERTa's: it counts no tab, no line break, and none of their pairs."""
    folder = lab.copy(gpt2_folder, tmp_path / "gpt2")
    ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    never = {str(number) for token, number in ids.items() if set(token) <= set("ĊĉčċČ")}
    text = (folder / "dict.txt").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(\d+) \d+$", lambda m: f"{m[1]} 0" if m[1] in never else m[0], text)
    (folder / "dict.txt").write_text(text, encoding="utf-8")
    return folder


def convert(output, vocabulary, *flags):
    return conftest.convert(labelled_text, output, *flags, tokenizer=["--gpt2-bpe", vocabulary])


def decoded(folder):
    tokenizer, split = load_tokenizer(folder), ClassificationSplit.open(folder, "train")
    return [tokenizer.decode(split.document[number]) for number in range(len(split))]


def test_a_corpus_that_roberta_reads_has_blanks_for_line_breaks(vocabulary, tmp_path, write_lines, capsys):
    lines = write_lines("train.jsonl", ROWS)
    assert convert(tmp_path / "data", vocabulary, "--train", lines) == 0
    assert decoded(tmp_path / "data") == ["the theory  of the  long document", "attention ", "café the"]
    assert "unknown to the dictionary" not in capsys.readouterr().out
    # the same command again finds the folder finished; the other reading is another corpus
    assert convert(tmp_path / "data", vocabulary, "--train", lines) == 0
    assert convert(tmp_path / "data", vocabulary, "--train", lines, "--white-space", "keep") == 1
    assert "differs in: tokenizer" in capsys.readouterr().err


def test_tokens_of_count_0_are_reported_and_without_counts_unknown_ones_only(vocabulary, tmp_path, write_lines, capsys):
    lines = write_lines("train.jsonl", ROWS)
    assert convert(tmp_path / "data", vocabulary, "--train", lines, "--white-space", "keep") == 0
    assert decoded(tmp_path / "data") == TEXTS
    line = r"train: (\d+) of (\d+) tokens \(.*count 0 for them: (.*); give --white-space blank\n"
    rare, count, names = re.search(line, capsys.readouterr().out).groups()
    split = ClassificationSplit.open(tmp_path / "data", "train")
    tokens = [load_tokenizer(tmp_path / "data").decode([token]) for token in split.document.values.tolist()]
    blanks = [token for token in tokens if token and not token.strip(" \n\r\t") and token.strip(" ")]
    assert (int(rare), int(count)) == (len(blanks), len(tokens))
    assert blanks
    assert "'\\n' 4" in names or "'\\n\\n'" in names
    path = vocabulary / "dict.txt"
    path.write_text(re.sub(r"(?m) \d+$", " 0", path.read_text(encoding="utf-8")), encoding="utf-8")
    lines = write_lines("train.jsonl", [{"text": "the z\n", "label": k} for k in range(2)])  # "z" is not in dict.txt
    assert convert(tmp_path / "none", vocabulary, "--train", lines) == 0
    assert "count 0 for them: <unk> 2\n" in capsys.readouterr().out

import gzip
import json

from fairseq.data import Dictionary, data_utils

from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess.arxiv_pubmed import parse
from preprocess.pipeline import parts
from preprocess.pipeline.records import read_lines
from tests.preprocess.conftest import contents, rejects


def read_side(folder, split, side):
    return data_utils.load_indexed_dataset(str(folder / f"{split}.source-target.{side}"), None, dataset_impl="mmap")


def test_fairseq_reads_it_and_the_text_comes_back(command, release, tmp_path, capsys):
    assert command(tmp_path, "--input-folder", release) == 0
    tokenizer = load_tokenizer(tmp_path)
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        examples = [parse(record) for record in read_lines([release / f"{name}.txt"])]
        for number, side in enumerate(("source", "target")):
            dictionary = Dictionary.load(str(tmp_path / f"dict.{side}.txt"))
            dataset = read_side(tmp_path, split, side)
            assert len(dataset) == len(examples)
            assert len(dictionary) == len(tokenizer)
            for example, ids in zip(examples, dataset, strict=True):
                assert ids[-1] == dictionary.eos()
                assert dictionary.bos() not in ids
                assert tokenizer.decode(ids.tolist()).replace("<unk>", "z") == example.texts[number].replace("\n", " ")
        summaries = (tmp_path / f"{split}.summary.txt").read_text(encoding="utf-8").split("\n")
        assert summaries == [*(example.texts[1] for example in examples), ""]
        ids = (tmp_path / f"{split}.id.txt").read_text(encoding="utf-8").splitlines()
        assert ids == [example.id for example in examples]
        assert (tmp_path / f"{split}.rejects.jsonl").read_text() == ""
    assert not list(tmp_path.glob(".parts")) + list(tmp_path.glob("*unfinished"))
    printed = capsys.readouterr()
    table = printed.out.splitlines()
    assert "INFO: train: " in printed.err
    assert [line.split()[:2] for line in table[1:]] == [["train", "5"], ["valid", "2"], ["test", "1"], ["all", "8"]]
    assert json.loads((tmp_path / "corpus.json").read_text())["table"] == table


def test_the_same_bytes_whatever_the_number_of_workers(command, release, tmp_path, monkeypatch):
    for name, workers, size in (("one", 1, 500), ("three", 3, 500), ("large", 1, 10**6)):
        monkeypatch.setattr(parts, "PART_BYTES", size)
        assert command(tmp_path / name, "--input-folder", release, "--workers", workers) == 0
        assert contents(tmp_path / "one") == contents(tmp_path / name)


def test_gzip_globs_and_several_files(command, release, tmp_path):
    assert command(tmp_path / "plain", "--train", release / "train.txt", "--valid", release / "val.txt") == 0
    lines = (release / "train.txt").read_bytes().splitlines(keepends=True)
    for number, piece in enumerate((lines[:2], lines[2:])):
        with gzip.open(tmp_path / f"piece-{number}.jsonl.gz", "wb") as file:
            file.writelines(piece)
    assert command(tmp_path / "zipped", "--train", tmp_path / "piece-*.gz", "--valid", release / "val.txt") == 0
    plain, zipped = contents(tmp_path / "plain"), contents(tmp_path / "zipped")
    assert plain.pop("corpus.json") != zipped.pop("corpus.json")
    assert plain == zipped


def test_sentencepiece_trained_and_given(command, release, tmp_path):
    train = ["--sentencepiece-train", "340"]
    for name in ("trained", "again"):
        assert command(tmp_path / name, "--input-folder", release, tokenizer=train) == 0
    assert contents(tmp_path / "trained") == contents(tmp_path / "again"), "training is not deterministic"
    assert len(Dictionary.load(str(tmp_path / "trained" / "dict.source.txt"))) == 340
    for side in ("source", "target"):
        assert not any(3 in ids.tolist() for ids in read_side(tmp_path / "trained", "valid", side))
    model = ["--sentencepiece-model", tmp_path / "trained" / "tokenizer" / "sentencepiece.model"]
    assert command(tmp_path / "model", "--input-folder", release, tokenizer=model) == 0
    trained, read = contents(tmp_path / "trained"), contents(tmp_path / "model")
    trained.pop("corpus.json"), read.pop("corpus.json")
    assert trained == read


def test_limit_takes_the_first_good_examples_of_train(command, release, tmp_path, monkeypatch, write_lines):
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    good = [json.loads(line) for line in (release / "train.txt").read_text(encoding="utf-8").splitlines()]
    train = write_lines("train.txt", [b"bad", *good[:3], b"bad", good[3], b"bad"])
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        args = ["--train", train, "--valid", release / "val.txt", "--max-reject-fraction", "0.5"]
        assert command(out, *args, "--limit", "3", "--workers", workers) == 0
        assert (out / "train.id.txt").read_text().split() == [example["article_id"] for example in good[:3]]
        assert [reject["line"] for reject in rejects(out)] == [1]
        assert len(read_side(out, "valid", "source")) == 2

import json
import re

import numpy as np

from fairseq_poolingformer.tasks.wikihop.data import WikihopSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import wikihop
from tests.preprocess.conftest import convert, rejects

GOOD = {
    "id": "WH_train_0",
    "query": "part_of attention",
    "answer": "the theory",
    "candidates": ["another document", "the theory"],
    "supports": ["the theory of attention", "what it attends to é 長"],
}


def changed(**fields):
    return {key: value for key, value in {**GOOD, **fields}.items() if value is not ...}


def write(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_the_texts_come_back(tmp_path, capsys):
    second = changed(id="WH_train_1", query="of ", supports=[], candidates=["the ", " the"], answer=" the")
    train = write(tmp_path / "train.json", [GOOD, second])
    test = write(tmp_path / "test.json", [changed(answer=...)])
    assert convert(wikihop, tmp_path / "data", "--train", train, "--test", test) == 0
    folder = tmp_path / "data"
    tokenizer, split = load_tokenizer(folder), WikihopSplit.open(folder, "train")
    for number, example in enumerate((GOOD, second)):
        assert tokenizer.decode(split.question[number]) == " " + example["query"].strip()
        for name in ("candidates", "supports"):
            sizes = getattr(split, f"{name[:-1]}_sizes")[number]
            pieces = np.split(getattr(split, name)[number], np.cumsum(sizes))[:-1]
            assert [tokenizer.decode(piece) for piece in pieces] == [" " + text.strip() for text in example[name]]
        assert split.answer[number].tolist() == [example["candidates"].index(example["answer"])]
    names = [json.loads(line) for line in (folder / "train.candidates.txt").read_text().splitlines()]
    assert names == [GOOD["candidates"], second["candidates"]]  # as they are: predictions are compared with them
    assert WikihopSplit.open(folder, "test").answer.sizes.tolist() == [0]
    assert json.loads((folder / "corpus.json").read_text())["kind"] == "wikihop"
    out = capsys.readouterr().out
    assert "train: 2 × candidates that no support mentions" in out
    assert "train: 1 × answer that no support mentions" in out
    assert "train: 1 × candidates that have the same tokens as another one" in out
    sizes = split.question.sizes
    assert f"train: questions have up to {sizes.max()} tokens\n" in out


BAD = {
    "id": (changed(id=...), "'id' must be a string, is missing"),
    "many": (changed(candidates=[str(n) for n in range(2**15 + 1)]), "too many candidates: the marks of 32,769 fill"),
    "long": (changed(query="the " * 2**16), r"too long: the question and the marks of its candidates are 65,5\d\d tok"),
    "query": (changed(query=" "), "empty question"),
    "none": (changed(candidates=[]), "no candidates"),
    "twice": (changed(candidates=["the theory", "the theory"]), "candidate is there twice: 'the theory'"),
    "answer": (changed(answer="theory"), "answer is no candidate: 'theory'"),
    "support": (changed(supports=["a", " "]), r"empty or no text: supports\[1\]"),
    "again": (GOOD, "WH_train_0"),
}


def test_every_bad_element_is_named_and_no_good_one_is_lost(tmp_path):
    good = [changed(id=f"good_{number}") for number in range(3)]
    values = [GOOD, *good[:2], *(value for value, _ in BAD.values()), good[2]]
    train = write(tmp_path / "train.json", values)
    assert convert(wikihop, tmp_path / "data", "--train", train, "--max-reject-fraction", 0.9) == 0
    assert (tmp_path / "data" / "train.id.txt").read_text().split() == ["WH_train_0", "good_0", "good_1", "good_2"]
    for number, (reject, (_, reason)) in enumerate(zip(rejects(tmp_path / "data"), BAD.values(), strict=True), 4):
        assert reject["file"] == f"{train}, element {number}"
        assert re.search(reason, reject["reason"]), reject


def test_the_released_files_are_read(tmp_path, shared_data):
    for corpus in ("wikihop", "medhop"):
        train, valid = (shared_data / "wikihop" / corpus / f"{split}.json" for split in ("train", "dev"))
        assert convert(wikihop, tmp_path / corpus, "--train", train, "--valid", valid, "--overwrite") == 0
        assert len(WikihopSplit.open(tmp_path / corpus, "valid")) == 5

"""Damaged and crafted files of tokenizers and dictionaries: each is read, or ends in a sentence that names the file."""

import json
import random
import shutil

import pytest
import sentencepiece
from fairseq.data import Dictionary

from fairseq_poolingformer.patches import table
from fairseq_poolingformer.text.dictionary import read_symbols
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer, load_tokenizer
from tests.checkpoint_reader.watched import assert_harmless, watched
from tests.text.tiny_gpt2 import TEXT, write_vocabulary

table.apply()
SAMPLE = "the naïve theory 😀 \n\t of 注意力"


def used(tokenizer):
    ids = tokenizer.encode(SAMPLE)
    tokenizer.encode_with_offsets(SAMPLE)
    tokenizer.symbol_texts()
    return tokenizer.decode(ids.tolist())


READERS = {
    "dict.txt": ("dict.txt", lambda folder: len(read_symbols(folder / "dict.txt"))),
    "dict.txt, fairseq's": ("dict.txt", lambda folder: len(Dictionary.load(str(folder / "dict.txt")))),
    "encoder.json": ("encoder.json", lambda folder: used(GPT2Tokenizer.from_files(folder))),
    "vocab.bpe": ("vocab.bpe", lambda folder: used(GPT2Tokenizer.from_files(folder))),
    "config.json": ("tokenizer/config.json", lambda folder: used(load_tokenizer(folder))),
    "sentencepiece": ("sentencepiece.model", lambda folder: used(SentencePieceTokenizer.from_files(folder))),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """For each reader, a folder of good files."""
    folder = tmp_path_factory.mktemp("good")
    gpt2 = write_vocabulary(folder / "gpt2")
    GPT2Tokenizer.from_files(gpt2).save(gpt2)
    pieces = folder / "pieces"
    pieces.mkdir()
    model = SentencePieceTokenizer.files[0]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 5),
        model_prefix=str(pieces / "m"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (pieces / "m.model").rename(pieces / model)
    return {name: pieces if name == "sentencepiece" else gpt2 for name in READERS}


JUNK = [
    b"\xff\xfe",
    b"1" * 5000,
    b"\n" * 100,
    b"[" * 200_000,
    b'"',
    b"null",
    b"{}",
    b"-1",
    b"1e999",
    b"\0",
    b"\x85",
    b" ",
]
JUNK += [
    "²".encode(),
    b"<s> 1\n",
    b"a" * 100_000,
    b"\xed\xa0\x80",
    b"99999999999999999999",
    b"x\xc2\xa01\n",
    b" #fairseq:overwrite",
]
VALUES = [None, [], {}, "x", 3, -1, [["x"]], {"a": {}}, 1e308, True, [1, 2], "\ud800", [[1, 2, 3]]]


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 10])):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[place % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[place:place] = rng.choice(JUNK)
        elif kind == 2:
            del data[place : place + rng.choice([1, 10, 1000])]
        elif kind == 3:
            data[place:place] = data[place : place + 200]
        else:
            del data[place : None if rng.random() < 0.2 else place + 1]
    return bytes(data)


def with_other_values(value, rng):
    """JSON with one value anywhere in it exchanged."""
    if not isinstance(value, list | dict) or not value or rng.random() < 0.15:
        return rng.choice(VALUES)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    if rng.random() < 0.1:
        del copy[key]
    else:
        copy[key] = with_other_values(copy[key], rng)
    return copy


def test_each_is_read_or_ends_in_a_sentence(good, tmp_path, request):
    def make(seed):
        rng, (name, (file, _)) = random.Random(seed), list(READERS.items())[seed % len(READERS)]
        folder = tmp_path / str(seed)
        shutil.copytree(good[name], folder)
        data = (folder / file).read_bytes()
        if file.endswith("json") and rng.random() < 0.5:
            data = json.dumps(with_other_values(json.loads(data), rng)).encode()
        else:
            data = damaged(data, rng)
        (folder / file).write_bytes(data)
        return folder

    def read(folder):
        return list(READERS.values())[int(folder.name) % len(READERS)][1](folder)

    for name, (_, reader) in READERS.items():
        assert reader(good[name])
    count = 10_000 if request.config.getoption("--thorough") else 300
    outcomes = watched(
        read, range(count), seconds=20, memory=2**30, make=make, use=lambda value: "read", own=str(tmp_path)
    )
    assert_harmless(outcomes, ("ValueError", "DictionaryError"))

"""Damaged and crafted files of tokenizers and dictionaries: each is read, or ends in a sentence that names the file."""

import random
import shutil

import pytest
from fairseq.data import Dictionary

from fairseq_poolingformer.patches import table
from fairseq_poolingformer.text.dictionary import read_symbols
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer, load_tokenizer
from tests.text.tiny_gpt2 import TEXT, train_sentencepiece, write_vocabulary

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
    train_sentencepiece(pieces / SentencePieceTokenizer.files[0], TEXT.split("\n") * 5, 60)
    return {name: pieces if name == "sentencepiece" else gpt2 for name in READERS}


JUNK = [b"\xff\xfe", b"1" * 5000, b"[" * 200_000, b'"', b"null", b"{}", b"-1", b"1e999", b"\0", b"\x85", b"<s> 1\n"]
JUNK += [b"a" * 100_000, b"\xed\xa0\x80", b"99999999999999999999", b"x\xc2\xa01\n", b" #fairseq:overwrite"]


def damaged(data, rng):
    for _ in range(rng.choice([1, 1, 2, 10])):
        place = rng.randrange(len(data) + 1)
        put = rng.choice([b"", rng.randbytes(1), rng.choice(JUNK), data[place : place + 200]])
        data = data[:place] + put + data[place + rng.choice([0, 1, 10, 1000]) :]
    return data


@pytest.mark.parametrize("name", READERS)
def test_each_is_read_or_ends_in_a_sentence(good, tmp_path, name):
    file, read = READERS[name]
    shutil.copytree(good[name], tmp_path / "folder")
    path = tmp_path / "folder" / file
    whole, sentences = path.read_bytes(), []
    assert read(path.parents[file.count("/")])
    for seed in range(50):
        path.write_bytes(damaged(whole, random.Random(seed)))
        try:
            read(path.parents[file.count("/")])
        except ValueError as error:
            sentences.append(str(error))
    assert len(sentences) > 5
    named = ("encoder.json", path.name)  # a merge that is damaged makes a token that encoder.json lacks
    assert all(one.partition(":")[0].partition(",")[0].endswith(named) for one in sentences), sentences

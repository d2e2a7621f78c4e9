"""Documents with a label for each word: arrays, other keys, numbers as labels, rejects."""

import json

import numpy as np
import pytest

from fairseq_poolingformer.tasks.token_labels.data import TokenLabelSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import token_labels
from preprocess.pipeline.records import Record

GOOD = {"id": "a", "tokens": ["the", "theory", "\u200b"], "labels": ["O", "B-X", "O"]}


def convert(folder, gpt2_folder, *args):
    flags = ("--gpt2-bpe", gpt2_folder, "--output-folder", folder, "--workers", 1, *args)
    return token_labels.main([*map(str, flags)])


def test_words_are_encoded_by_themselves(tmp_path, gpt2_folder, write_lines):
    train = write_lines("train.jsonl", [GOOD, GOOD | {"id": "b", "sentences": [1, 2]}])
    assert convert(tmp_path / "data", gpt2_folder, "--train", train) == 0
    split, tokenizer = TokenLabelSplit.open(tmp_path / "data", "train"), load_tokenizer(tmp_path / "data")
    pieces = [tokenizer.encode(f" {word}") for word in GOOD["tokens"]]
    assert split.document[0].tolist() == np.concatenate(pieces).tolist()
    assert split.word[0].tolist() == list(map(len, pieces))
    assert [split.sentence[k].tolist() for k in (0, 1)] == [[3], [1, 2]]
    assert split.label[0].tolist() == [1, 0, 1]
    assert [json.loads(line) for line in TokenLabelSplit.lines(tmp_path / "data", "train", "words")] == [
        GOOD["tokens"]
    ] * 2


def test_names_of_labels_that_are_numbers(tmp_path, gpt2_folder, write_lines):
    """As the Hub has CoNLL-2003."""
    train = write_lines("train.jsonl", [{"words": ["the", "theory"], "ner_tags": [2, 0]}])
    flags = ("--train", train, "--tokens-key", "words", "--labels-key", "ner_tags")
    assert convert(tmp_path / "names", gpt2_folder, *flags, "--labels", "O", "B-PER", "I-PER") == 0
    assert TokenLabelSplit.open(tmp_path / "names", "train").label[0].tolist() == [2, 0]
    assert convert(tmp_path / "numbers", gpt2_folder, *flags) == 0
    assert json.loads((tmp_path / "numbers/corpus.json").read_text())["labels"] == ["0", "2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labels": ["O"]}, "malformed: 3 tokens and 1 labels"),
        ({"tokens": "the theory"}, "wrong type: tokens is a string, not a list"),
        ({"tokens": ["the", " ", "a"]}, "wrong type: tokens must hold words"),
        ({"tokens": []}, "wrong type: tokens must hold words"),
        ({"labels": ["O", "B X", "O"]}, 'wrong type: a label is "B X", not a string without blanks'),
        ({"sentences": [2]}, "malformed: 3 tokens, and sentences of 2"),
        ({"sentences": ["3"]}, "wrong type: sentences must hold whole numbers"),
    ],
)
def test_rejects(change, reason):
    assert token_labels.parse(Record("f", 1, json.dumps(GOOD | change).encode())).reason.startswith(reason)


def test_errors_for_people(tmp_path, gpt2_folder, write_lines, capsys):
    other = write_lines("other.jsonl", [{"text": "the", "tags": ["O"]}])
    assert convert(tmp_path / "data", gpt2_folder, "--train", other) == 1
    assert "needs two labels or more, has none; first reject:" in (error := capsys.readouterr().err)
    assert "no tokens: the line lacks tokens; its keys are text, tags (name one with --tokens-key)" in error
    assert convert(tmp_path / "data", gpt2_folder, "--test", other) == 1
    assert "--labels: give them where there is no --train to find them in" in capsys.readouterr().err
    train = write_lines("train.jsonl", [GOOD])
    flags = ("--train", train, "--labels", "O", "B-Y", "--max-reject-fraction", 1)
    convert(tmp_path / "data", gpt2_folder, *flags)
    assert "unknown label: 'B-X' is not one of O, B-Y" in (tmp_path / "data/train.rejects.jsonl").read_text()

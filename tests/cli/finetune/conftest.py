"""Small data of both tasks and tiny models of transformers, made once."""

import json
import random

import pytest

from fairseq_poolingformer.cli.finetune import command
from fairseq_poolingformer.cli.finetune.data import Data
from tests.models import tiny_huggingface

WORDS = [a + b for a in ("ba", "de", "fi", "go", "lu", "ma") for b in ("ban", "del", "fin", "gor", "lus")]


def text(rng, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a file for each task."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    pairs = [{"document": text(rng, 30 + number), "summary": text(rng, 4)} for number in range(30)]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    reviews = [f"{text(rng, 9)} {'good' if n % 2 else 'bad'},{'pos' if n % 2 else 'neg'}" for n in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["review,label", *reviews]))
    return folder


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    """A RoBERTa that reads 46 tokens."""
    return str(tiny_huggingface.folder(tmp_path_factory.mktemp("roberta") / "model", "roberta"))


@pytest.fixture(scope="session")
def bart(tmp_path_factory):
    """A BART that reads 40 tokens."""
    return str(tiny_huggingface.folder(tmp_path_factory.mktemp("bart") / "model", "bart"))


def read(data, *flags):
    """The examples in a file; reviews.csv needs the name of its column."""
    words = ["--text-column", "review"] if str(data).endswith("reviews.csv") else []
    parser = command.make_parser()
    args = parser.parse_args(["model", str(data), "--output-folder", "run", *words, *map(str, flags)])
    assert not args.further
    return Data.read(args)

"""Small data of every task and tiny models of transformers, made once."""

import json
import random
from types import SimpleNamespace

import pytest

from fairseq_poolingformer.cli.finetune.data import Data
from tests.models import tiny_huggingface

WORDS = [a + b for a in ("ba", "de", "fi", "go", "lu", "ma") for b in ("ban", "del", "fin", "gor", "lus")]


def text(rng, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a file for each task, as people have them."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    pairs = [{"document": text(rng, 30 + number), "summary": text(rng, 4)} for number in range(30)]
    reviews = [f"{text(rng, 9)} {'good' if n % 2 else 'bad'},{'pos' if n % 2 else 'neg'}" for n in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["review,sentiment", *reviews]))
    amounts = [{"text": text(rng, 9), "score": n / 4} for n in range(40)]
    several = [{"text": text(rng, 9), "labels": ["a", "b", "c"][: n % 4]} for n in range(40)]
    for name, rows in {"pairs": pairs, "amounts": amounts, "several": several}.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    articles = []
    for number in range(20):
        context = text(rng, 40)
        answer = " ".join(context.split()[10:12])
        answers = [{"text": answer, "answer_start": context.index(answer)}] * (number % 4 > 0)
        question = {"id": f"q{number}", "question": f"what is {number}", "answers": answers}
        articles.append({"title": f"t{number}", "paragraphs": [{"context": context, "qas": [question]}]})
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    return folder


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    """A RoBERTa that reads 46 tokens."""
    return str(tiny_huggingface.folder(tmp_path_factory.mktemp("roberta") / "model", "roberta"))


@pytest.fixture(scope="session")
def bart(tmp_path_factory):
    """A BART that reads 40 tokens."""
    return str(tiny_huggingface.folder(tmp_path_factory.mktemp("bart") / "model", "bart"))


def options(data, **more):
    """The options of the command that are about data."""
    usual = {"task": None, "valid_share": 0.1, "test_share": 0.1, "split_seed": 0, "max_reject_fraction": 0.01}
    return SimpleNamespace(**usual | {"data": str(data)} | more)


def read(data, *flags, **more):
    """The examples in a file."""
    return Data.read(options(data, **more), flags, ())

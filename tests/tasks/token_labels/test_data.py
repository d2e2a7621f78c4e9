"""Figures of entities against conlleval's rules on random labels, and files that are wrong."""

import json
import random
from itertools import chain

import pytest

from fairseq_poolingformer.cli import score as command
from fairseq_poolingformer.tasks.token_labels.data import EntityCounts, entities, score
from tests.tasks.token_labels.naive_conlleval import counts

KINDS = ("PER", "LOC", "X-Y")


def random_labels(rng, size, tags):
    return ["O" if rng.random() < 0.3 else f"{rng.choice(tags)}-{rng.choice(KINDS)}" for _ in range(size)]


@pytest.mark.parametrize("tags", ["BI", "I", "BIES"])
def test_counts_are_conllevals(tags):
    rng = random.Random(tags)
    for _ in range(2000):
        sizes = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
        gold = [random_labels(rng, size, tags) for size in sizes]
        new = [random_labels(rng, size, tags) for size in sizes]
        pairs = zip(gold, new, strict=True)
        other = [[rng.choices(two, (7, 3))[0] for two in zip(*pair, strict=True)] for pair in pairs]
        found, there = (entities(list(chain.from_iterable(labels)), sizes) for labels in (other, gold))
        own = EntityCounts.of([(found, there)])
        assert [own.right, own.found, own.there] == list(counts(list(zip(gold, other, strict=True))))


def write(path, *documents):
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def test_figures_of_columns_and_of_lines(tmp_path, capsys):
    columns = "-DOCSTART- O\n\na X B-PER\nb X I-PER\nc X O\n\nd X B-LOC\n\n-DOCSTART- O\n\ne X O\n"
    (tmp_path / "gold.conll").write_text(columns)
    gold = {
        "id": "gold.conll:3",
        "tokens": list("abcd"),
        "labels": ["B-PER", "I-PER", "O", "B-LOC"],
        "sentences": [3, 1],
    }
    found = gold | {"labels": ["B-PER", "I-PER", "B-LOC", "I-LOC"]}
    predictions = write(tmp_path / "p.jsonl", found)
    for file in (tmp_path / "gold.conll", write(tmp_path / "gold.jsonl", gold, gold | {"id": "other"})):
        assert (
            command.main(
                ["--task", "token_labels", str(predictions), "--gold", str(file), "--json", str(tmp_path / "s")]
            )
            == 0
        )
        figures = json.loads((tmp_path / "s").read_text())
        assert figures["kind"] == "token_labels"
        # c and d are two entities, since a sentence ends between them: one of three is wrong
        assert [figures[name] for name in ("accuracy", "precision", "recall")] == [50, 100 * 2 / 3, 100]
        assert [figures[name] for name in ("f1_PER", "precision_LOC", "examples", "without_prediction")] == [
            100,
            50,
            1,
            1,
        ]
    assert "f1                  80.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "x"}, "p.jsonl: the gold files do not have 'x'; are they of another split"),
        ({"tokens": ["v"]}, "p.jsonl, a: word 1 is 'v', and the gold files have 'w'"),
        ({"labels": ["O", "O"]}, "p.jsonl, line 1: 1 tokens and 2 labels"),
        ({"tokens": ["v", "w"], "labels": ["O", "O"], "sentences": [3, -1]}, "p.jsonl, line 1: 'sentences' must be"),
    ],
)
def test_wrong_files_are_named(change, message, tmp_path):
    gold = {"id": "a", "tokens": ["w"], "labels": ["O"]}
    with pytest.raises(ValueError, match=message):
        score([write(tmp_path / "gold.jsonl", gold)], write(tmp_path / "p.jsonl", gold | change))

"""Figures of predicted labels: accuracy, and precision, recall and F1 of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.classification.released import read_ground_truth, read_imdb
from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import Mean, Statistic, shares
from fairseq_poolingformer.text.input_files import suffix_of


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones, of the documents that have a prediction."""
    read = registry.tasks()["document_classification"].command("labelled_text").read_labels
    predicted = read(Path(predictions))

    def read_gold(path: Path) -> dict[str, str]:
        if suffix_of(path.name) == ".xml":
            return read_ground_truth(path)
        labels = read_imdb(path) or read(path)
        if not path.is_dir() or labels.keys() & predicted.keys():
            return labels
        return {name.partition("/")[2]: label for name, label in labels.items()}  # made by another command than imdb

    return figures(*compared(gold, predictions, read_gold, lambda _: predicted))


def figures(right: Mapping[str, str], predicted: Mapping[str, str]) -> dict[str, float | int]:
    """Accuracy, macro F1, and precision, recall and F1 of each label, in percent, of predictions by id."""
    pairs = [(right[name], label) for name, label in predicted.items()]
    same = [100 * (one == other) for one, other in pairs]
    names = sorted({*right.values(), *predicted.values()})
    there, found = (np.array([[name == pair[side] for name in names] for pair in pairs], int) for side in (0, 1))
    counts = np.stack([found & there, found, there], 1)  # (n, 3, labels)
    scores: dict[str, float | int] = {"accuracy": Mean.of(sum(same) / len(same), same)}
    scores["macro_f1"] = Statistic.of(counts, _macro_f1)
    for name, each in zip(names, counts.sum(axis=0).T.tolist(), strict=True):
        scores |= {f"{kind}_{name}": value for kind, value in shares(*each).items()}
    return scores | {"examples": len(pairs), "without_prediction": len(right) - len(pairs)}


def _macro_f1(counts: np.ndarray) -> float:
    hits, found, there = counts.sum(axis=0)
    return float(np.mean(200 * hits / np.maximum(found + there, 1)))

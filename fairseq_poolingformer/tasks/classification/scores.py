"""Figures of predicted labels: accuracy, and precision, recall and F1 of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.classification.released import IMDB_LABELS, imdb_id, read_ground_truth
from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import Mean, Statistic, shares
from fairseq_poolingformer.text.json_file import opened
from fairseq_poolingformer.text.json_values import BadLine, placed, read_object
from fairseq_poolingformer.text.labels import id_of, label_of


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones, of the documents that have a prediction."""
    return figures(*compared(gold, predictions, read_gold, read_gold))


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


def read_gold(path: Path) -> dict[str, str]:
    """Read the label of every document by its id."""
    if path.is_dir():
        files = [file for label in IMDB_LABELS for file in sorted((path / label).glob("*.txt"))]
        return {imdb_id(file.resolve()): file.parent.name for file in files}
    if path.suffix == ".xml":
        return read_ground_truth(path)
    if path.suffix in (".csv", ".tsv", ".parquet"):
        raise ValueError(f'{path}: not lines of JSON with "id" and "label"; make one of each row')
    labels: dict[str, str] = {}
    with opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                with placed(path, f"line {number}"):
                    fields = read_object(line)
                    name, label = id_of(fields, str(path), number), label_of(fields)
                    if name in labels:
                        raise BadLine(f"id {name} is there twice")
                labels[name] = label
    return labels

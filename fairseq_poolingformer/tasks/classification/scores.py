"""Accuracy, and precision, recall and F1 of each label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.classification.labelled_files import read_gold


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones.

    Only documents with a prediction count, since a split may be a share of a released file.

    Args:
        gold: IMDB's folders, Hyperpartisan's ground truth, or lines of JSON with labels.
        predictions: lines of JSON with ``id`` and ``label``.

    Returns:
        ``accuracy``; ``precision_LABEL``, ``recall_LABEL`` and ``f1_LABEL``; all in percent. ``examples`` and
        ``without_prediction``.

    Raises:
        ValueError: a file is not of its format, or a prediction is of no document.
    """
    labels: dict[str, str] = {}
    for path in gold:
        for name, label in read_gold(Path(path)).items():
            if labels.setdefault(name, label) != label:
                raise ValueError(f"{path}: document {name!r} has the label {label}, and {labels[name]} in another file")
    found = read_gold(Path(predictions))
    if not found:
        raise ValueError(f"{predictions}: no predictions in it")
    unknown = next((name for name in found if name not in labels), None)
    if unknown is not None:
        same = next((name for name in labels if name.lstrip("0") == unknown.lstrip("0")), None)
        cause = "are they of another split?" if same is None else f"their {same!r} is another id"
        raise ValueError(f"{predictions}: the gold files have no document {unknown!r}; {cause}")
    pairs = [(labels[name], label) for name, label in found.items()]
    figures: dict[str, float | int] = {"accuracy": 100 * sum(right == label for right, label in pairs) / len(pairs)}
    for name in sorted({*labels.values(), *found.values()}):  # also those of which no document was predicted
        hits = sum(right == label == name for right, label in pairs)
        predicted, there = (sum(pair[side] == name for pair in pairs) for side in (1, 0))
        figures[f"precision_{name}"] = 100 * hits / predicted if predicted else 0.0
        figures[f"recall_{name}"] = 100 * hits / there if there else 0.0
        figures[f"f1_{name}"] = 200 * hits / (predicted + there) if predicted + there else 0.0
    return figures | {"examples": len(pairs), "without_prediction": len(labels) - len(pairs)}

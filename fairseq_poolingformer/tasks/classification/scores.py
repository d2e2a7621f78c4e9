"""Figures of predicted labels: accuracy, and precision, recall and F1 of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.classification.released import read_ground_truth, read_imdb
from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import shares
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
    names = sorted({*right.values(), *predicted.values()})
    hits = Counter(label for label, answer in pairs if label == answer)
    there, answers = (Counter(labels) for labels in zip(*pairs, strict=True))
    of_labels = {name: shares(hits[name], answers[name], there[name]) for name in names}
    scores: dict[str, float | int] = {"accuracy": 100 * hits.total() / len(pairs)}
    scores["macro_f1"] = sum(each["f1"] for each in of_labels.values()) / len(names)
    for name, each in of_labels.items():
        scores |= {f"{kind}_{name}": value for kind, value in each.items()}
    return scores | {"examples": len(pairs), "without_prediction": len(right) - len(pairs)}

"""QAngaroo's figure: the share of questions whose predicted candidate is the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.gold import check_known
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_file import read_json_file


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compare predictions with the released examples.

    An example without a prediction is wrong. A prediction for no example, and one that is no candidate, is wrong input.
    """
    predicted = read_json_file(predictions, unique=True)
    known: dict[str, int] = {}  # 100 where the prediction is right
    for path in gold:
        for number, value in enumerate(read_json_file(path, list), 1):
            with json_values.placed(path, f"element {number}"):
                fields = json_values.as_object(value, "the element")
                name, answer = json_values.text_of(fields, "id"), json_values.text_of(fields, "answer")
                candidates = json_values.list_of(fields, "candidates")
            if name in known:
                raise ValueError(f"{path}, element {number}: id {name} is there twice")
            if name in predicted and predicted[name] not in candidates:
                raise ValueError(f"{predictions}, {name}: {predicted[name]!r} is no candidate of that question")
            known[name] = 100 * (predicted.get(name) == answer)
    if not known:
        raise ValueError(f"{', '.join(map(str, gold))}: no examples")
    check_known(predictions, predicted, known)
    missing = sum(name not in predicted for name in known)
    right = [value for name, value in known.items() if not predicted_only or name in predicted]
    accuracy = Mean.of(sum(right) / max(len(right), 1), right)
    return {"accuracy": accuracy, "examples": len(right), "without_prediction": missing}

"""The share of questions whose section is ranked first, and the mean of one over the right section's rank."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.gold import check_known
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_lines import read_object

FORM = 'an object with "sections", id -> numbers of sections, the best first'


def recognizes(predictions: str, gold: str, options: Collection[str]) -> bool:
    """Whether a file that begins so, beside gold data that does, is of this form."""
    return predictions.lstrip().removeprefix("{").lstrip().startswith('"sections"')


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare rankings with ``SPLIT.sections.txt`` of a data folder.

    A question without a ranking is wrong, and so is a section that its ranking lacks.

    Args:
        gold: lines of JSON with ``id`` and ``answer``.
        predictions: ``{"sections": {id: [number, …]}}``.

    Returns:
        ``accuracy`` and ``mrr`` in percent, ``examples`` and ``without_prediction``.

    Raises:
        ValueError: a file is not of its format; the message names it and the line.
    """
    ranked = json_values.as_object(read_json_file(predictions).get("sections"), f"{predictions}: sections")
    known: dict[str, float] = {}
    for path in gold:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            with json_values.placed(path, f"line {number}"):
                fields = read_object(line)
                name, answer = json_values.text_of(fields, "id"), fields.get("answer")
                found = ranked.get(name, [])
                if type(answer) is not int or not isinstance(found, list):
                    raise ValueError("'answer' must be a number, and the prediction a list of numbers")
            if name in known:
                raise ValueError(f"{path}, line {number}: id {name} is there twice")
            known[name] = 1 / (found.index(answer) + 1) if answer in found else 0.0
    if not known:
        raise ValueError(f"{', '.join(map(str, gold))}: no examples")
    check_known(predictions, ranked, known)
    ranks, first = list(known.values()), [100 * (value == 1) for value in known.values()]
    return {
        "accuracy": Mean.of(sum(first) / len(known), first),
        "mrr": Mean.of(100 * sum(ranks) / len(known), 100 * np.array(ranks)),
        "examples": len(known),
        "without_prediction": sum(name not in ranked for name in known),
    }

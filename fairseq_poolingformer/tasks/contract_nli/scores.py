"""ContractNLI's released files, and its published figures: of hypotheses, and of the spans that prove them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.gold import compared
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import as_object, example_id_of, list_of, placed, text_of

FORM = 'a list of documents with "annotation_sets"'
RECALL = 0.8  # at which the precision of evidence is given

Key = tuple[str, str]  # a document's id, and a hypothesis's


class Choice(IntEnum):
    """What a contract says of a hypothesis, numbered as in the data folder and in the output layer."""

    NotMentioned = 0
    Entailment = 1
    Contradiction = 2


def recognizes(predictions: str, gold: str, options: Collection[str]) -> bool:
    """Whether a file that begins so, beside gold data that does, is of this form."""
    return predictions.lstrip().startswith("[") and '"annotation_sets"' in predictions


@dataclass(frozen=True)
class Annotation:
    """A hypothesis about a document; ``spans`` are the numbers of those that prove the choice."""

    choice: Choice
    spans: tuple[int, ...]


@dataclass(frozen=True)
class Prediction:
    """(3,) probabilities of choices, and (spans,) of evidence."""

    choices: np.ndarray
    spans: np.ndarray


def hypotheses_of(release: dict) -> dict[str, str]:
    """The text of each hypothesis by its id.

    Raises:
        ValueError: they are missing.
    """
    labels = as_object(release.get("labels"), "'labels'")
    return {name: text_of(as_object(value, name), "hypothesis") for name, value in labels.items()}


def annotations_of(document: Mapping[str, object]) -> dict[str, dict]:
    """The annotations of a document, or of a prediction, by hypothesis.

    Raises:
        ValueError: there is not one set of them.
    """
    sets = list_of(document, "annotation_sets")
    if len(sets) != 1:
        raise ValueError(f"{len(sets)} annotation sets; there must be one")
    annotations = as_object(as_object(sets[0], "an annotation set").get("annotations"), "'annotations'")
    return {name: as_object(value, name) for name, value in annotations.items()}


def annotation_of(fields: Mapping[str, object], num_spans: int) -> Annotation:
    """Read a released annotation.

    Raises:
        ValueError: its choice or a span is not one of those that there are.
    """
    choice, spans = fields.get("choice"), list_of(fields, "spans")
    if choice not in list(Choice.__members__):
        raise ValueError(f"'choice' must be one of {', '.join(Choice.__members__)}, is {choice!r}"[:120])
    if not all(type(number) is int and 0 <= number < num_spans for number in spans):
        raise ValueError(f"'spans' must be numbers of the document's {num_spans} spans")
    return Annotation(Choice[choice], tuple(spans))


def _by_key(path: Path, documents: list, read: Callable[[dict, dict], Any]) -> dict[Key, Any]:
    """What ``read`` makes of each annotation and its document."""
    found = {}
    for number, value in enumerate(documents):
        with placed(path, f"document {number}"):
            document = as_object(value, "a document")
            name = str(example_id_of(document, "id"))
        with placed(path, f"document {name}"):
            for label, fields in annotations_of(document).items():
                if (name, label) in found:
                    raise ValueError(f"{label!r} comes a second time")
                found[name, label] = read(fields, document)
    return found


def read_gold(path: Path) -> dict[Key, tuple[Annotation, int]]:
    """Read a released file: annotations, and the number of spans of their documents.

    Raises:
        ValueError: it is something else; the message names the document.
    """

    def read(fields: dict, document: dict) -> tuple[Annotation, int]:
        count = len(list_of(document, "spans"))
        return annotation_of(fields, count), count

    return _by_key(path, list_of(read_json_file(path), "documents"), read)


def read_predictions(path: Path) -> dict[Key, Prediction]:
    """Read predictions as the published evaluator does.

    Raises:
        ValueError: the file holds something else.
    """

    def read(fields: dict, _: dict) -> Prediction:
        choices = as_object(fields.get("class_probs"), "'class_probs'")
        ordered = [choices.get(choice.name) for choice in Choice]
        return Prediction(_numbers(ordered), _numbers(list_of(fields, "span_probs")))

    return _by_key(path, read_json_file(path, list), read)


def _numbers(values: list) -> np.ndarray:
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ValueError("'class_probs' must have a number for each choice, and 'span_probs' for each span")
    return np.array(values, np.float64)


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compute the published figures of a prediction file.

    Evidence is that of hypotheses which the contract mentions, whatever was predicted of them.

    Args:
        gold: released files.
        predictions: a list of documents with ``class_probs`` and ``span_probs`` of each hypothesis.

    Returns:
        ``accuracy``; precision, recall and F1 of Entailment and Contradiction; ``map`` and ``precision_at_recall_80``
        of evidence: over all documents and hypotheses, and as ``macro_NAME`` the mean over hypotheses for which it is
        defined; in percent. ``examples`` and ``without_prediction``, which do not count.

    Raises:
        ValueError: a file is not of its format, or a prediction is of no document or of another number of spans.
    """
    right, found = compared(gold, predictions, read_gold, read_predictions)
    for key, prediction in found.items():
        if len(prediction.spans) != right[key][1]:
            raise ValueError(
                f"{predictions}, document {key[0]}: {len(prediction.spans)} spans, and it has {right[key][1]}"
            )
    pairs = [(key[1], right[key][0], prediction) for key, prediction in found.items()]
    labels = sorted({label for label, _, _ in pairs})
    micro = figures([pair[1:] for pair in pairs])
    each = [figures([pair[1:] for pair in pairs if pair[0] == label]) for label in labels]
    counts = {"examples": len(found), "without_prediction": len(right) - len(found)}
    macro = {f"macro_{name}": [one[name] for one in each if one[name] is not None] for name in micro}
    means = {name: sum(values) / len(values) if values else None for name, values in macro.items()}
    return {name: 100 * (0.0 if value is None else value) for name, value in {**micro, **means}.items()} | counts


def figures(pairs: Sequence[tuple[Annotation, Prediction]]) -> dict[str, float | None]:
    """The figures of some hypotheses, from 0 to 1; None where one is not defined."""
    choices = [(annotation.choice, Choice(int(found.choices.argmax()))) for annotation, found in pairs]
    same = [right == found for right, found in choices]
    values: dict[str, float | None] = {"accuracy": Mean.of(sum(same) / len(same), same)}
    for choice in (Choice.Entailment, Choice.Contradiction):
        hits = sum(right == found == choice for right, found in choices)
        predicted, there = (sum(pair[side] == choice for pair in choices) for side in (1, 0))
        name = choice.name.lower()
        values[f"precision_{name}"] = hits / predicted if predicted else 0.0
        values[f"recall_{name}"] = hits / there if there else None
        values[f"f1_{name}"] = 2 * hits / (predicted + there) if there else None
    mentioned = [pair for pair in pairs if pair[0].choice != Choice.NotMentioned]
    evidence = [np.isin(np.arange(len(found.spans)), annotation.spans) for annotation, found in mentioned]
    probabilities = [found.spans for _, found in mentioned]
    return values | evidence_figures(np.concatenate([[], *evidence]) > 0, np.concatenate([[], *probabilities]))


def evidence_figures(is_evidence: np.ndarray, probability: np.ndarray) -> dict[str, float | None]:
    """Average precision, and the precision at the highest threshold that finds 80 % of the evidence, (n,) bool.

    Equal ones of the (n,) probabilities have one threshold.
    """
    if not is_evidence.any():
        return {"map": None, "precision_at_recall_80": None}
    order = np.argsort(-probability, kind="stable")
    is_last = np.append(np.diff(probability[order]) != 0, True)
    hits = np.cumsum(is_evidence[order])[is_last]
    precision, recall = hits / (np.flatnonzero(is_last) + 1), hits / hits[-1]
    average = float(np.sum(np.diff(recall, prepend=0) * precision))
    return {"map": average, "precision_at_recall_80": float(precision[np.argmax(recall >= RECALL)])}

"""Accuracy, and precision, recall and F1 of each label, and the released files of labels: JSON, IMDB, Hyperpartisan."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from fairseq_poolingformer.text.json_lines import BadLine, read_object
from fairseq_poolingformer.text.xml_elements import read_elements

FORM = 'lines of JSON with "id" and "label"'


def recognizes(predictions: str, gold: str, options: Collection[str]) -> bool:
    """Whether a file that begins so, beside gold data that does, is of this form."""
    first = predictions.lstrip().partition("\n")[0]
    return first.startswith("{") and all(f'"{key}":' in first for key in ("id", "label"))


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


IMDB_LABELS = ("neg", "pos")
HYPERPARTISAN_LABELS = ("false", "true")


def label_of(fields: dict) -> str:
    """Return the label of a JSON line as text: a string, a whole number, true or false.

    Raises:
        BadLine: there is none, or it is something else.
    """
    label = fields.get("label")
    if isinstance(label, str) and label.strip():
        return " ".join(label.split())
    if isinstance(label, int):
        return json.dumps(label)
    raise BadLine("no label: 'label' must be a string, a whole number, true or false")


def id_of(fields: dict, file: str, line: int) -> str:
    """Return the id of a JSON line, or its file's name and number where it has none."""
    name = fields.get("id", f"{Path(file).name}:{line}")
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise BadLine("'id' must be a string or a whole number")
    name = " ".join(str(name).split())
    if not name:
        raise BadLine("empty id")
    return name


def imdb_id(path: Path) -> str:
    """``test/pos/0_10`` for ``…/test/pos/0_10.txt``."""
    return "/".join((*Path(path).parts[-3:-1], Path(path).stem))


def read_ground_truth(path: Path) -> dict[str, str]:
    """Read Hyperpartisan's ground truth: "true" or "false" by article id.

    Raises:
        ValueError: the file is not such XML.
    """
    labels: dict[str, str] = {}
    with open(path, "rb") as content:
        for element in read_elements(content, str(path), "article"):
            name, label = (element.attributes.get(key, "") for key in ("id", "hyperpartisan"))
            if element.problem or not name.strip() or label not in HYPERPARTISAN_LABELS or name in labels:
                raise ValueError(
                    f"{path}, line {element.line}, article {name}: "
                    + (element.problem or "needs an id of its own and hyperpartisan=true or false")
                )
            labels[name] = label
    if not labels:
        raise ValueError(f"{path}: no <article id=… hyperpartisan=…> in it")
    return labels


def read_gold(path: Path) -> dict[str, str]:
    """Read the label of every document by its id.

    Args:
        path: a folder of IMDB with ``pos`` and ``neg``, ``.xml`` of Hyperpartisan, or lines of JSON.

    Raises:
        ValueError: the file is of none of these formats; the message names the place.
    """
    if path.is_dir():
        files = [file for label in IMDB_LABELS for file in sorted((path / label).glob("*.txt"))]
        return {imdb_id(file.resolve()): file.parent.name for file in files}
    if path.suffix == ".xml":
        return read_ground_truth(path)
    return _json_labels(path)


def _json_labels(path: Path) -> dict[str, str]:
    labels: dict[str, str] = {}
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    fields = read_object(line)
                    name, label = id_of(fields, str(path), number), label_of(fields)
                    if name in labels:
                        raise BadLine(f"id {name} is there twice")
                except BadLine as error:
                    raise ValueError(f"{path}, line {number}: {error}") from error
                labels[name] = label
    return labels

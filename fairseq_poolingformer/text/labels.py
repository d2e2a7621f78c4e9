"""The labels of a data folder; the ids and labels of records."""

from __future__ import annotations

import json
from pathlib import Path

from fairseq_poolingformer.text.data_folder import DataFolder, Layout
from fairseq_poolingformer.text.json_values import BadLine


def read_labels(folder: Path, layout: Layout) -> list[str]:
    """Return the names of a data folder's labels."""
    labels = DataFolder(Path(folder), layout).corpus().get("labels")
    if not labels:
        raise ValueError(f"{folder}: no labels in corpus.json; make the folder with {layout.made_with}")
    return labels


def id_of(fields: dict, file: str, line: int) -> str:
    """Return the id of a JSON line, or its file's name and number where it has none."""
    name = fields.get("id", f"{Path(file).name}:{line}")
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise BadLine("'id' must be a string or a whole number")
    name = " ".join(str(name).split())
    if not name:
        raise BadLine("empty id")
    return name


def label_of(fields: dict) -> str:
    """Return a JSON line's label as text: a string, a whole number, true or false, or a list of one of these."""
    label = fields.get("label")
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if isinstance(label, float) and label.is_integer():  # as tables have whole numbers
        label = int(label)
    if isinstance(label, str) and label.strip():
        return " ".join(label.split())
    if isinstance(label, int):
        return json.dumps(label)
    if isinstance(label, list):
        raise BadLine(f"several labels: 'label' is a list of {len(label)}, and a document has one")
    raise BadLine("no label: 'label' must be a string, a whole number, true or false, or a list of one of these")

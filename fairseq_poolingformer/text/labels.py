"""The labels of a data folder, and the ids of labelled records."""

from __future__ import annotations

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

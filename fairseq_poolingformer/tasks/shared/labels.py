"""The labels of a data folder: their names, and how many of them an example has."""

from __future__ import annotations

from pathlib import Path

from fairseq_poolingformer.text.data_folder import DataFolder, Layout

ONE, SEVERAL, AMOUNT = PROBLEM_TYPES = (  # transformers' names
    "single_label_classification",
    "multi_label_classification",
    "regression",
)
AMOUNT_LABEL = "amount"  # the one label of a regression


def read_labels(folder: Path, layout: Layout) -> list[str]:
    """Return the names of a data folder's labels.

    Raises:
        FileNotFoundError: the folder is not finished.
        ValueError: it is a folder of another kind.
    """
    labels = DataFolder(Path(folder), layout).corpus().get("labels")
    if not labels:
        raise ValueError(f"{folder}: no labels in corpus.json; make the folder with {layout.made_with}")
    return labels


def read_problem_type(folder: Path, layout: Layout) -> str:
    """Return which of :data:`PROBLEM_TYPES` a data folder has.

    Raises:
        FileNotFoundError: the folder is not finished.
        ValueError: it has another one.
    """
    found = DataFolder(Path(folder), layout).corpus().get("problem_type", ONE)
    if found not in PROBLEM_TYPES:
        raise ValueError(f"{folder}: problem_type in corpus.json is none of {', '.join(PROBLEM_TYPES)}")
    return found

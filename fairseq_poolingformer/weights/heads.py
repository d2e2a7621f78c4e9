"""The head of document classification: its names in fairseq's checkpoints and in transformers' classes.

transformers has a class for it, whose parameters have other names; the heads of other tasks stay with fairseq.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_poolingformer.weights import ConversionError

LANGUAGE_MODEL = "lm_head."
LONGEST_LABEL = 1000  # characters
OWN_FAMILY = "poolingformer-roberta"
FAMILIES = (OWN_FAMILY, "roberta", "xlm-roberta", "longformer")  # the model_type of those that have the class
TASK, CLASS_SUFFIX = "document_classification", "ForSequenceClassification"
ONE_LABEL = "single_label_classification"  # transformers' name
PREFIX, PROJECTION = f"{TASK}_head.", f"{TASK}_head.out_proj."
TO_HUGGINGFACE = {f"{PREFIX}dense.": "classifier.dense.", PROJECTION: "classifier.out_proj."}  # beginnings of names
TO_FAIRSEQ = {theirs: ours for ours, theirs in TO_HUGGINGFACE.items()}
READERS = ("question_answering", "triviaqa", "hotpotqa")  # tasks that answer questions


def in_fairseq(state: Mapping[str, Tensor], family: str = OWN_FAMILY) -> bool:
    """Whether a fairseq checkpoint has the head, and a family of transformers the class."""
    return family in FAMILIES and any(name.startswith(PREFIX) for name in state)


def in_huggingface(state: Mapping[str, Tensor], family: str, class_name: str = "") -> bool:
    """Whether a Hugging Face model has the head."""
    fits = family in FAMILIES and (not class_name or class_name.endswith(CLASS_SUFFIX))
    return fits and all(any(name.startswith(theirs) for name in state) for theirs in TO_FAIRSEQ)


def write_config(settings: Mapping[str, Any], state: Mapping[str, Tensor], language_model: str) -> dict[str, Any]:
    """Return what ``config.json`` keeps of the head; ``language_model`` is the family's class for masked LM."""
    matrix = state.get(name := f"{PROJECTION}weight")
    if matrix is None or matrix.dim() != 2:
        raise ValueError(f"the checkpoint has no matrix {name}, which a {TASK} head needs")
    count, labels = len(matrix), settings.get("labels") or ()
    if len(labels) != count:
        labels = [f"LABEL_{number}" for number in range(count)]
    config: dict[str, Any] = {"architectures": [language_model.removesuffix("ForMaskedLM") + CLASS_SUFFIX]}
    config["id2label"] = {str(number): label for number, label in enumerate(labels)}
    config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return fairseq's settings of the head; undoes :func:`write_config`."""
    kind, names = config.get("problem_type"), config.get("id2label")
    if kind not in (None, ONE_LABEL) or (isinstance(names, Mapping) and len(names) == 1):
        raise ConversionError(
            f"config.json: problem_type {kind}, {len(names or ())} labels: --task {TASK} gives a document one label of "
            "two or more; convert the encoder alone with --drop-heads"
        )
    return {"task": TASK} | ({"labels": config["labels"]} if config.get("labels") is not None else {})


def check_is_no_reader(state: Mapping[str, Tensor]) -> None:
    """Refuse question answering, which transformers' classes and pipelines ask in another form than the task here."""
    heads = {name.partition("_head.")[0] for name in state}
    if task := next((task for task in READERS if task in heads), None):
        raise ConversionError(
            f"the checkpoint answers questions (--task {task}), and transformers asks them in another form than it was "
            "trained on: answer with poolingformer predict, or convert the encoder alone with --drop-heads"
        )


def class_of(config: Mapping[str, Any]) -> str:
    """Return the name of the model's class in a ``config.json``; "" where it has none."""
    classes = config.get("architectures")
    return classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""


def taken(state: dict[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Take the parameters whose names begin as ``names`` says out of a state, and rename them."""
    renamed = {}
    for name in list(state):
        if start := next((start for start in names if name.startswith(start)), None):
            renamed[names[start] + name.removeprefix(start)] = state.pop(name).detach().clone().contiguous()
    return renamed


def labels_of(config: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the classes in a ``config.json``; None where it has none, or none that people gave."""
    named = config.get("id2label")
    if not isinstance(named, Mapping) or set(named) != {str(number) for number in range(len(named))}:
        return None
    labels = [named[str(number)] for number in range(len(named))]
    are_texts = all(isinstance(label, str) and len(label) < LONGEST_LABEL for label in labels)
    return labels if are_texts and labels != [f"LABEL_{number}" for number in range(len(labels))] else None

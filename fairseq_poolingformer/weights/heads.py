"""The heads of the downstream tasks: their names in fairseq's checkpoints and in transformers' classes.

transformers has classes for documents and tokens, whose parameters have other names; others stay with fairseq.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fairseq_poolingformer.weights import ConversionError

LANGUAGE_MODEL = "lm_head."
LONGEST_LABEL = 1000  # characters
OWN_FAMILY = "poolingformer-roberta"
FAMILIES = (OWN_FAMILY, "roberta", "xlm-roberta", "longformer")  # the model_type of those that have the classes


@dataclass(frozen=True)
class Head:
    """A task's head."""

    task: str  # fairseq's --task; the names of the parameters begin with TASK_head.
    end: str  # the end of the name of transformers' class
    parts: Mapping[str, str]  # beginnings of fairseq's names, after TASK_head. -> those of transformers'
    options: tuple[str, ...] = ()  # options of the task that config.json keeps, where a checkpoint has them
    labels: bool = False  # whether the rows of out_proj.weight are labels that have names

    @property
    def prefix(self) -> str:
        """The beginning of fairseq's names of the parameters."""
        return f"{self.task}_head."

    @property
    def names(self) -> dict[str, str]:
        """Beginnings of fairseq's names -> beginnings of transformers'."""
        return {self.prefix + part: name for part, name in self.parts.items()}

    def architecture(self, language_model: str) -> str:
        """Return transformers' class, by the name of the family's class for masked language modelling."""
        return language_model.removesuffix("ForMaskedLM") + self.end

    def config(self, settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return what ``config.json`` keeps of the head."""
        found = {name: settings[name] for name in self.options if settings.get(name) is not None}
        if self.labels:
            matrix = state.get(name := f"{self.prefix}out_proj.weight")
            if matrix is None or matrix.dim() != 2:
                raise ValueError(f"the checkpoint has no matrix {name}, which a {self.task} head needs")
            count, labels = len(matrix), settings.get("labels") or ()
            if len(labels) != count:
                labels = [f"LABEL_{number}" for number in range(count)]
            found["id2label"] = {str(number): label for number, label in enumerate(labels)}
            found["label2id"] = {label: number for number, label in enumerate(labels)}
        return found

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return fairseq's settings of the head; undoes :meth:`config`."""
        found = {name: config[name] for name in (*self.options, "labels") if config.get(name) is not None}
        return {"task": self.task, **found}


HEADS = (
    Head(
        "document_classification",
        "ForSequenceClassification",
        parts={"dense.": "classifier.dense.", "out_proj.": "classifier.out_proj."},
        options=("problem_type",),
        labels=True,
    ),
)
READERS = ("question_answering", "triviaqa", "hotpotqa")  # tasks that answer questions


def head_of_fairseq(state: Mapping[str, Tensor], family: str | None = None) -> Head | None:
    """Return the head of a fairseq checkpoint that a family of transformers has a class for, if there is one."""
    if family not in (None, *FAMILIES):
        return None
    return next((head for head in HEADS if any(name.startswith(head.prefix) for name in state)), None)


def check_is_no_reader(state: Mapping[str, Tensor]) -> None:
    """Refuse question answering, which transformers' classes and pipelines ask in another form than the task here."""
    heads = {name.partition("_head.")[0] for name in state}
    if task := next((task for task in READERS if task in heads), None):
        raise ConversionError(
            f"the checkpoint answers questions (--task {task}), and transformers asks them in another form than it was "
            "trained on: answer with poolingformer predict, or convert the encoder alone with --drop-heads"
        )


def head_of_huggingface(state: Mapping[str, Tensor], family: str, class_name: str = "") -> Head | None:
    """Return the head of a Hugging Face model."""
    for head in HEADS:
        fits = family in FAMILIES and (not class_name or class_name.endswith(head.end))
        if fits and all(any(name.startswith(theirs) for name in state) for theirs in head.names.values()):
            return head
    return None


def class_of(config: Mapping[str, Any]) -> str:
    """Return the name of the model's class in a ``config.json``; "" where it has none."""
    classes = config.get("architectures")
    return classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""


def taken(state: dict[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Take the parameters whose names begin as ``names`` says out of a state, and rename them."""
    found = {}
    for name in list(state):
        if start := next((start for start in names if name.startswith(start)), None):
            found[names[start] + name.removeprefix(start)] = state.pop(name).detach().clone().contiguous()
    return found


def labels_of(config: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the classes in a ``config.json``; None where it has none, or none that people gave."""
    named = config.get("id2label")
    if not isinstance(named, Mapping) or set(named) != {str(number) for number in range(len(named))}:
        return None
    labels = [named[str(number)] for number in range(len(named))]
    given = all(isinstance(label, str) and len(label) < LONGEST_LABEL for label in labels)
    return labels if given and labels != [f"LABEL_{number}" for number in range(len(labels))] else None

"""The tasks: one line for each.

Nothing of a task is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

OWN = "fairseq_poolingformer.tasks"


@dataclass(frozen=True)
class Task:
    """A task and where its parts are.

    Attributes:
        name: of fairseq's ``--task``; ``corpus.json`` of a data folder has it as ``kind``.
        package: the Python package of its modules: ``examples``, ``head``, ``loss``, ``task``, ``predictions``,
            ``scores``; a task has those that it needs.
        corpora: the commands that preprocess data for it, with one line of help each.
        figures: the official figures that ``scores`` computes, for help.
    """

    name: str
    package: str
    corpora: Mapping[str, str] = field(default_factory=dict)
    figures: str = ""

    def module(self, name: str) -> ModuleType | None:
        """Import one of the task's modules; None if it has no such module."""
        full = f"{self.package}.{name}"
        return import_module(full) if find_spec(full) else None


TASKS = {
    task.name: task
    for task in (
        Task("long_summarization", f"{OWN}.summarization", figures="ROUGE"),
        Task("long_masked_lm", f"{OWN}.masked_lm"),
        Task("question_answering", f"{OWN}.question_answering", figures="F1 of long and short answers"),
        Task(
            "document_classification",
            f"{OWN}.classification",
            figures="accuracy; precision, recall and F1 of each label (IMDB, Hyperpartisan, others)",
        ),
        Task("wikihop", f"{OWN}.wikihop", figures="accuracy (WikiHop, MedHop)"),
        Task(
            "triviaqa",
            f"{OWN}.triviaqa",
            figures="exact match and F1 of questions (Wikipedia), or of questions and documents (web)",
        ),
        Task(
            "hotpotqa",
            f"{OWN}.hotpotqa",
            figures="exact match, F1, precision and recall of answers, of supporting facts, and joint",
        ),
        Task("coreference", f"{OWN}.coreference", figures="MUC, B³, CEAF-φ4 and the mean of their F1 (CoNLL-2012)"),
    )
}

"""The tasks: one line for each, here or in somebody's own package.

A package of its own adds a task by the same line in its ``__init__.py``, ``TASK = add(Task(...))``, and is found by its
entry point ``NAME = "package:TASK"`` of the group ``fairseq_poolingformer.tasks``, or by ``--user-dir``; see
docs/own_task.md. Nothing of a task is imported before it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from fairseq_poolingformer.text.json_file import corpus_of

GROUP = OWN = "fairseq_poolingformer.tasks"
PARTS = ("models", "task", "loss")  # modules of a task, here or elsewhere, that register something with fairseq


@dataclass(frozen=True)
class Task:
    """A task and where its parts are: :data:`PARTS`, ``scores`` or ``data``, of which it has those that it needs.

    A module ``predictions`` may add options to ``poolingformer predict``: ``EPILOG``, ``add_options(parser)`` and
    ``run(args, load_models, read_batches)``.
    """

    name: str  # of fairseq's ``--task``; ``corpus.json`` of a data folder has it as ``kind``
    package: str  # the Python package of its modules
    kinds: tuple[str, ...] = ()  # other values of ``kind`` in ``corpus.json``
    corpora: Mapping[str, str] = field(default_factory=dict)  # its commands of preprocessing, with a line of help
    commands: str = ""  # the package of these commands' modules; "" for ``package``
    figures: str = ""  # the official figures that it computes, for help; "" where there are none
    models: str = "fairseq_poolingformer.models.roberta"  # the module of the architectures that it trains
    is_predicted: bool = True  # whether ``poolingformer predict`` predicts it

    def module(self, name: str) -> ModuleType | None:
        """Import one of the task's modules; None if it has no such module."""
        full = f"{self.package}.{name}"
        return import_module(full) if find_spec(full) else None

    def scores(self) -> ModuleType | None:
        """The module with ``score``, or ``make_parser`` and ``run``: ``scores``, or a small task's ``data``."""
        return (self.module("scores") or self.module("data")) if self.figures else None

    def command(self, corpus: str) -> ModuleType:
        """Import the module whose ``main`` preprocesses a corpus."""
        return import_module(f"{self.commands or self.package}.{corpus}")

    def register(self) -> None:
        """Import the modules that register something with fairseq."""
        import_module(self.models)
        for part in PARTS:
            self.module(part)


def _own(name: str, folder: str, **entries) -> Task:
    return Task(name, f"{OWN}.{folder}", commands="fairseq_poolingformer.preprocess", **entries)


_TASKS = {
    task.name: task
    for task in (
        _own(
            "long_summarization",
            "summarization",
            corpora={
                "arxiv_pubmed": "arXiv, PubMed, BigPatent and other records with summaries",
                "facts": "made documents, five facts scattered in real prose, no download",
            },
            figures="ROUGE",
            models="fairseq_poolingformer.models.bart",
            is_predicted=False,
        ),
        _own(
            "long_masked_lm",
            "masked_lm",
            corpora={
                "wikipedia": "a dump of Wikipedia, or of another wiki, in any language, for language models",
                "plain_text": "text files, a document each or a document each block of lines, for language models",
            },
            is_predicted=False,
        ),
        Task(
            "char_lm",
            "fairseq_poolingformer.char_lm",
            corpora={"char_lm": "enwik8, text8 or any other text, bytes as symbols, for character language models"},
            commands="fairseq_poolingformer.preprocess",
            models="fairseq_poolingformer.char_lm.models",
            is_predicted=False,
        ),
        _own(
            "question_answering",
            "question_answering",
            kinds=("natural_questions", "tydiqa"),
            corpora={
                "natural_questions": "questions about Wikipedia pages: Natural Questions, both formats",
                "tydiqa": "questions about Wikipedia pages in eleven languages: TyDi QA, primary tasks",
            },
            figures="F1 of long and short answers (Natural Questions, TyDi QA)",
        ),
        _own(
            "document_classification",
            "classification",
            corpora={
                "imdb": "film reviews with a sentiment each: the folder aclImdb",
                "hyperpartisan": "news articles, hyperpartisan or not: the XML pair of the 2019 task",
                "labelled_text": "any records with a text and a label each",
            },
            figures="accuracy; precision, recall, F1 of labels (IMDB, Hyperpartisan, others)",
        ),
        _own(
            "wikihop",
            "wikihop",
            corpora={"wikihop": "questions about several documents with candidate answers: WikiHop and MedHop"},
            figures="accuracy (WikiHop, MedHop)",
        ),
        _own(
            "triviaqa",
            "triviaqa",
            corpora={"triviaqa": "questions about Wikipedia or web pages: TriviaQA with its evidence files"},
            figures="exact match and F1 of questions (Wikipedia), or of questions and documents (web)",
        ),
        _own(
            "hotpotqa",
            "hotpotqa",
            corpora={"hotpotqa": "questions about several paragraphs with supporting facts: HotpotQA with distractors"},
            figures="exact match, F1, precision and recall of answers, of supporting facts, and joint",
        ),
        _own(
            "coreference",
            "coreference",
            corpora={
                "ontonotes": "documents whose mentions are marked, in the column format of CoNLL-2012: OntoNotes, for "
                "coreference"
            },
            figures="MUC, B³, CEAF-φ4 and the mean of their F1 (CoNLL-2012)",
        ),
    )
}


def add(task: Task) -> Task:
    """Add a task of another package, and return it; fairseq knows it at once where fairseq is imported."""
    if _TASKS.setdefault(task.name, task) != task:
        raise ValueError(
            f"there is a task {task.name} already, in {_TASKS[task.name].package}; give the one in {task.package} "
            "another name"
        )
    if sys.modules.get("fairseq") is not None:
        task.register()
    return task


def tasks() -> Mapping[str, Task]:
    """All tasks by name, those of installed packages among them."""
    for entry in _entry_points():
        module = sys.modules.get(entry.module)
        if entry.name in _TASKS or (module is not None and not hasattr(module, entry.attr)):
            continue  # the latter is being imported and will add itself
        try:
            add(entry.load())
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"the task {entry.name} of an installed package ({entry.value}) cannot be imported: {error}; repair or "
                "uninstall that package"
            ) from error
    return _TASKS


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def corpora() -> dict[str, Task]:
    """The task of each command that preprocesses a corpus."""
    return {corpus: task for task in tasks().values() for corpus in task.corpora}


def of_folder(folder: str | Path) -> Task | None:
    """The task of a finished data folder; None of anything else."""
    made_of = corpus_of(folder) or {}
    corpus = made_of.get("corpus")
    return of_kind(made_of.get("kind")) or (corpora().get(corpus) if isinstance(corpus, str) else None)


def of_kind(kind: object) -> Task | None:
    """The task whose data folders have this ``kind`` in ``corpus.json``; None for no known one."""
    return next((task for task in tasks().values() if kind in (task.name, *task.kinds)), None)

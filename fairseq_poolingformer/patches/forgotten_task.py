"""A wrong or forgotten ``--task`` or ``--arch`` is refused: data folders, flags and checkpoints say which one fits."""

import contextlib
import itertools
import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Container, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from fairseq_poolingformer.checkpoints import CheckpointError, checked_states
from fairseq_poolingformer.command import UsageError, shorten_errors
from fairseq_poolingformer.patches.saving import DICTIONARIES
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.text.dictionary import MARKS, SPECIAL_SYMBOLS, read_symbols
from fairseq_poolingformer.text.json_file import corpus_of
from fairseq_poolingformer.weights.special_tokens import rows_by_symbol

PACKAGE = __package__.partition(".")[0]
READ_DOCUMENTS = ("long_masked_lm", "masked_lm", "language_modeling")  # and fairseq's variants of the last two


def refuse_task_of_another_folder(original: Callable, cfg: Any, **kwargs: Any) -> Any:
    """Refuse a task that would misread a data folder of this project."""
    # fairseq's default, translation, pads documents on the left and leaves out the long ones, with exit status 0
    if not kwargs.get("from_checkpoint"):
        _check_folder(cfg)
        _make_absolute(cfg)
    return original(cfg, **kwargs)


def explain_unknown_flags(original: Callable, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Explain unknown flags in one sentence: those of another task or model, or ones that resemble others."""
    words = list(map(str, sys.argv[1:] if input_args is None else input_args))
    if "error" not in vars(parser):  # fairseq calls itself
        say, task = parser.error, dict(itertools.pairwise(words)).get("--task", "translation")
        shorten_errors(parser)
        explain = parser.error

        def error(message: str) -> None:
            folders = [(word, readers[0]) for word in words if (readers := _readers(Path(word.split(":")[0])))]
            unknown = message.startswith("unrecognized arguments")
            if unknown and folders and task != folders[0][1]:
                say(f"{message}; {folders[0][0]} is a data folder for --task {folders[0][1]}, not for --task {task}")
            for flag in re.findall(r" (--[\w-]+)", message) if unknown else ():
                if choices := _choices_with(flag, parser):
                    say(f"{message}; {flag} belongs to {' and to '.join(choices)}: give that one or leave the flag out")
            explain(message)

        parser.error = error
    return original(parser, input_args, *args, **kwargs)


def _choices_with(flag: str, parser: Any) -> list[str]:
    """The first ``--arch``, ``--task`` and so on that adds a flag, of this project if there are such."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    tables = {"arch": ARCH_MODEL_REGISTRY, "task": TASK_REGISTRY}
    tables |= {name: entry["registry"] for name, entry in REGISTRIES.items()}
    options = {action.dest: action.option_strings[0] for action in parser._actions if action.dest in tables}
    choices = ((option, *choice) for dest, option in options.items() for choice in tables[dest].items())
    owners = [choice for choice in choices if flag in _flags(choice[2])]
    ours = [owner for owner in owners if owner[2].__module__.startswith(PACKAGE)]
    return [f"{option} {name}" for option, name in {owner[0]: owner[1] for owner in reversed(ours or owners)}.items()]


@cache
def _flags(kind: type) -> Container[str]:
    parser = ArgumentParser(add_help=False, conflict_handler="resolve")
    getattr(kind, "add_args", lambda parser: None)(parser)  # some of fairseq's have none
    return parser._option_string_actions


def _check_folder(cfg: Any) -> None:
    from fairseq.tasks import TASK_REGISTRY

    name, data = getattr(cfg, "task", None) or getattr(cfg, "_name", None), getattr(cfg, "data", None)
    task = TASK_REGISTRY.get(name) if isinstance(name, str) else None
    if task is None or not isinstance(data, str) or not task.__module__.startswith(("fairseq.", f"{PACKAGE}.")):
        return
    folders = [Path(folder) for folder in data.split(":")]
    for folder in folders:
        readers = _readers(folder)
        known = tuple(TASK_REGISTRY[reader] for reader in readers if reader in TASK_REGISTRY)
        if readers and not issubclass(task, known):
            raise UsageError(
                f"{folder} is a data folder for --task {readers[0]}, not for --task {name}: give that one or another "
                "folder"
            )
    if task.__module__.startswith(f"{PACKAGE}."):
        for other in folders[1:]:
            _compare(folders[0], other)


def _compare(first: Path, other: Path) -> None:
    """Refuse a second data folder, in whose epochs the same numbers would stand for other words or labels."""
    for name in DICTIONARIES:
        if (first / name).is_file() and _symbols(first / name) != _symbols(other / name):
            raise UsageError(
                f"{other / name} is missing or another dictionary than {first / name}, so the same numbers mean other "
                "words there: make both folders with the same tokenizer"
            )
    corpora = [corpus_of(folder) or {} for folder in (first, other)]
    labels = [corpus.get("labels") for corpus in corpora]
    if labels[0] != labels[1]:
        raise UsageError(
            f"{other} has other labels than {first} ({labels[1]} and {labels[0]}): make both folders with the same "
            "--labels"
        )


def _symbols(path: Path) -> list[str] | None:
    return read_symbols(path) if path.is_file() else None


def _make_absolute(cfg: Any) -> None:
    """Give the configuration, which checkpoints keep, data folders that are found from every folder."""
    name, data = getattr(cfg, "_name", None), getattr(cfg, "data", None)
    if name in registry.tasks() and isinstance(data, str):
        cfg.data = ":".join(os.path.abspath(folder) for folder in data.split(":"))


def _readers(folder: Path) -> tuple[str, ...]:
    """The tasks that read a finished data folder; none where the folder is of another kind."""
    if (reader := registry.of_folder(folder)) is not None:
        return READ_DOCUMENTS if reader.name in READ_DOCUMENTS else (reader.name,)
    if (corpus := corpus_of(folder)) is None:  # the task says what is wrong with it
        return ()
    from fairseq_poolingformer.tasks.summarization import PAIRS

    if all((folder / name).is_file() for name in PAIRS.dictionaries):
        return ("long_summarization",)
    return READ_DOCUMENTS if "corpus" in corpus and (folder / "dict.txt").is_file() else ()


def refuse_padding_on_the_left(original: Callable, self: Any, cfg: Any, from_checkpoint: bool = False) -> Any:
    """Refuse to train a model of this plugin by a translation that pads on the left, as fairseq's does by default."""
    model = original(self, cfg, from_checkpoint)
    is_ours = type(model).__module__.startswith(f"{PACKAGE}.")
    if is_ours and self.cfg.left_pad_source and not from_checkpoint:
        raise UsageError(
            f"--arch {getattr(cfg, 'arch', None) or getattr(cfg, '_name', '')} pools from the first position, and "
            "this task pads there: give --task long_summarization, or to translate sentences "
            "--left-pad-source, which here means not to"
        )
    return model


def refuse_checkpoint_of_another_task(
    original: Callable, filenames: Any, arg_overrides: Any = None, task: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Refuse a checkpoint of a task of this plugin where a command has another ``--task``; match the symbols' rows."""
    check: Any = contextlib.nullcontext()
    if task is not None:
        check = checked_states(partial(_check_checkpoint, task=task))
    elif "task" in (arg_overrides or {}):  # of fairseq-validate, whose task the checkpoint's options become
        check = checked_states(_match_rows)
    with check:
        return original(filenames, arg_overrides, task, *args, **kwargs)


def _trained_task(state: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The options of a checkpoint's task, and its name."""
    options = getattr(state.get("cfg"), "task", None) or state.get("args")
    return options, getattr(options, "_name", None) or getattr(options, "task", None)


def _match_rows(path: str, state: Mapping[str, Any]) -> None:
    options, name = _trained_task(state)
    if name in registry.tasks():
        files = (Path(str(options.data).split(":")[0], name) for name in DICTIONARIES)
        words = next((read_symbols(file) for file in files if file.is_file()), [])
        rows_by_symbol(Path(path), state, [*SPECIAL_SYMBOLS, *words])


def _check_checkpoint(path: str, state: Mapping[str, Any], task: Any) -> None:
    from fairseq.tasks import TASK_REGISTRY

    _, name = _trained_task(state)
    trained = TASK_REGISTRY.get(name) if name in registry.tasks() else None
    is_ours = type(task).__module__.startswith(f"{PACKAGE}.")
    if trained is None:
        if is_ours:  # of a released checkpoint, as training does
            words = getattr(task.source_dictionary, "symbols", ())
            rows_by_symbol(Path(path), state, [symbol for symbol in words if symbol not in MARKS])
        return
    if not isinstance(task, trained) and (is_ours or type(task).__module__.startswith("fairseq.")):
        raise CheckpointError(
            f"{path}: a checkpoint of --task {name}, and this command has another --task; give that one or another "
            "checkpoint"
        )

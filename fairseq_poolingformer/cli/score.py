"""``poolingformer-score``: the official figures of predictions of every kind, which the file itself tells apart."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace

from fairseq_poolingformer.cli.command import (
    UsageError,
    add_gold,
    add_of_examples,
    add_user_dir,
    given_predictions,
    run_command,
    take_user_dir,
)
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.presets import PRESETS, SUITES
from fairseq_poolingformer.text.whole_file import write_lines

SQUAD, OF_PRESETS = "squad", "fairseq_poolingformer.tasks.presets"
BEGINNING = 2**16  # bytes of a file that tell its form
NAMING_FILES = {"--gold": None} | dict.fromkeys(
    ("--references", "--documents", "--json", "--output", "--na-prob-file"), 1
)  # option -> how many
_EPILOG = """\
tasks and figures:
{figures}

A task may have options of its own: poolingformer-score --task NAME --help

examples:
  poolingformer-score gen.out --gold data-bin/arxiv/test.summary.txt
  poolingformer-score predictions.json --gold v1.0/dev/nq-dev-*.jsonl.gz
  poolingformer-score predictions.json --gold qangaroo_v1.1/wikihop/dev.json
  poolingformer-score predictions.json --gold dev-v2.0.json --na-prob-file na_prob.json
  poolingformer-score --task qmsum predictions.json --gold QMSum/data/ALL/jsonl/test.jsonl
  poolingformer-score --task scrolls submission.csv --gold scrolls/*.zip
"""


def main(arguments: Sequence[str] | None = None, task: str | None = None, prog: str = "poolingformer-score") -> int:
    """Run the command and return its exit status; ``task`` is that of ``--task``."""
    own = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    own.add_argument("--task", default=task)
    found, rest = own.parse_known_args(take_user_dir(sys.argv[1:] if arguments is None else arguments))
    if found.task is None and {"-h", "--help"} & set(rest):
        return run_command(make_parser(prog), run, rest)
    try:
        with needing("scoring"):
            scores = _scores_of(found.task) if found.task else _recognized(rest)
    except UsageError as error:
        own.error(str(error))
    except (ValueError, OSError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    if hasattr(scores, "run"):
        return run_command(scores.make_parser(prog), scores.run, [_spaced(argument) for argument in rest])
    return run_command(make_parser(prog), lambda args: run(args, scores), rest)


def main_of_questions(arguments: Sequence[str] | None = None) -> int:
    """``poolingformer-score-qa``, the former name for Natural Questions and TyDi QA."""
    return main(arguments, "question_answering", "poolingformer-score-qa")


def main_of_tasks(arguments: Sequence[str] | None = None) -> int:
    """``poolingformer-score-task KIND``, the former name for the other tasks."""
    arguments = sys.argv[1:] if arguments is None else arguments
    named = [] if not arguments or arguments[0].startswith("-") else ["--task", arguments[0]]
    return main([*named, *arguments[len(named) // 2 :]], prog="poolingformer-score-task")


def _spaced(argument: str) -> str:
    """Put a space before a negative number, since argparse takes -1e-3 and -inf for options."""
    try:
        float(argument)
    except ValueError:
        return argument
    return f" {argument}"


def make_parser(prog: str = "poolingformer-score") -> argparse.ArgumentParser:
    """Return the parser for a task without options of its own."""
    figures = {name: task.figures for name, task in registry.tasks().items() if task.figures}
    figures |= {SQUAD: "exact match and F1 of SQuAD v1.1 and v2.0, with thresholds"}
    figures |= {"|".join(SUITES): "the score, and the figures of each task"}
    figures |= {"PRESET": "of what poolingformer-preprocess --help lists, such as qmsum: ROUGE, F1, accuracy, …"}
    width = max(map(len, figures))
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Compute the official figures of predictions, without the official scripts.",
        epilog=_EPILOG.format(figures="\n".join(f"  {name:{width}}  {text}" for name, text in figures.items())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_gold(parser, "the released files with the answers")
    add_of_examples(parser)
    parser.add_argument("--task", metavar="NAME", help="whose predictions these are (default: the file tells)")
    add_user_dir(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure here, unrounded")
    return parser


def parser_of(task: str) -> argparse.ArgumentParser:
    """Return the parser for a task; some have options of their own."""
    scores = _scores_of(task)
    return scores.make_parser("poolingformer-score") if hasattr(scores, "run") else make_parser()


def run(args: argparse.Namespace, scores: ModuleType) -> None:
    """Print the figures and write them to ``--json``."""
    from fairseq_poolingformer.tasks.shared.estimates import intervals

    has_choice = "predicted_only" in signature(scores.score).parameters  # others never count what is not predicted
    options = {"predicted_only": True} if has_choice and args.predicted_only else {}
    figures = scores.score(list(map(Path, args.gold)), Path(given_predictions(args)), **options)
    ranges = intervals(figures) if args.intervals else {}
    width = max(map(len, figures))
    for name, figure in figures.items():
        shown = f"{figure:.2f}" if isinstance(figure, float) else f"{figure:,}"
        print(f"{name:{width}}  {shown}" + ("  [{:.2f}, {:.2f}]".format(*ranges[name]) if name in ranges else ""))
    if args.json:
        kind = next(task.name for task in registry.tasks().values() if scores.__name__ == f"{task.package}.scores")
        more = {"intervals": ranges} if args.intervals else {}
        write_lines(args.json, [json.dumps({"kind": kind, **figures, **more}, indent=1)])


def _scores_of(name: str) -> ModuleType | SimpleNamespace:
    if name in (*PRESETS, *SUITES):
        return import_module(f"{OF_PRESETS}.scores").of(name)
    if name == SQUAD:
        return import_module(f"{OF_PRESETS}.{SQUAD}")
    known = {task.name: task for task in registry.tasks().values() if task.figures}
    if name not in known:
        raise UsageError(f"--task {name}: no such task; choose one of {', '.join([*known, SQUAD, *SUITES, *PRESETS])}")
    return known[name].module("scores")


def _recognized(arguments: Sequence[str]) -> ModuleType:
    """The scores of the task whose predictions the arguments name.

    Raises:
        FileNotFoundError: a file that is named is not there, or none is named.
        ValueError: it is of no task's form, or of several tasks'.
    """
    options, files, others = _files(arguments)
    for missing in (name for name in options.get("--gold", ()) if not Path(name).is_file()):
        raise FileNotFoundError(f"--gold {missing}: no such file")
    gold, predictions = (_beginning(names[0]) if names else "" for names in (options.get("--gold"), files))
    known = {task.name: task.module("scores") for task in registry.tasks().values() if task.figures}
    known[SQUAD] = import_module(f"{OF_PRESETS}.{SQUAD}")
    fitting = [name for name, scores in known.items() if scores.recognizes(predictions, gold, options)]
    if len(fitting) == 1:
        return known[fitting[0]]
    if fitting:
        raise ValueError(f"{files[0]}: may be of {' or '.join(fitting)}; give --task with one of them")
    if not files:
        is_there = f"{others[0]} is not a file" if others else "none is named"
        raise FileNotFoundError(f"give the file of predictions ({is_there}); poolingformer-score --help has examples")
    forms = "; ".join(f"{name}: {scores.FORM}" for name, scores in known.items())
    raise ValueError(f"{files[0]}: not recognized; name the task with --task. The forms are {forms}")


def _files(arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """The values that follow each option; of all that can be the predictions, the files, and what is not a file."""
    options: dict[str, list[str]] = {}
    files: list[str] = []
    others: list[str] = []
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            options.setdefault(name, []).extend([value] if value else [])
            continue
        values = options.setdefault(name, [])
        most = NAMING_FILES.get(name, 0)
        if most is None or len(values) < most:
            values.append(argument)
        else:
            (files if Path(argument).is_file() else others).append(argument)
    return options, files, others


def _beginning(file: str) -> str:
    """The first characters of a file, which may be compressed; "" of a folder and of what cannot be read."""
    try:
        with (gzip.open if file.endswith(".gz") else open)(file, "rb") as content:
            return content.read(BEGINNING).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError):
        return ""


if __name__ == "__main__":
    sys.exit(main())

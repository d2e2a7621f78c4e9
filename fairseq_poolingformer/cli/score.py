"""``poolingformer score``: the official figures of predictions of every task."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from fairseq_poolingformer.command import UsageError, output_file, run_command
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.options import add_gold, add_predicted_only, add_user_dir, given_predictions, take_user_dir
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.input_files import opened

SUMMARIES = "long_summarization"
_EPILOG = """\
tasks and figures:
{figures}

A task may have options of its own: poolingformer score --task NAME --help

examples:
  poolingformer score gen.out --references test.summary.txt
  poolingformer score --task question_answering predictions.json --gold v1.0/dev/nq-dev-*.jsonl.gz
  poolingformer score --task document_classification predictions.jsonl --gold aclImdb/test
  poolingformer score --task triviaqa predictions.json --gold triviaqa/qa/wikipedia-dev.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    prog, arguments = "poolingformer score", take_user_dir(sys.argv[1:] if arguments is None else arguments)
    task_parser = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    task_parser.add_argument("--task")
    task_parser.add_argument("--gold", nargs="+", default=[])
    task_parser.add_argument("--references", nargs="+", default=[])
    known, others = task_parser.parse_known_args(arguments)
    folders = (registry.of_folder(Path(file).parent) for file in (*known.gold, *known.references))
    task = known.task or next((of_folder.name for of_folder in folders if of_folder), None)
    try:
        with needing("scoring"):
            if task is None and (known.references or any(map(_is_generated, others))):
                task = SUMMARIES
            if task is None and {"-h", "--help"} & set(arguments):
                return run_command(make_parser(prog), run, arguments)  # type: ignore[arg-type]  # which --help leaves
            if task is None:
                raise UsageError("whose predictions are these? give --task NAME; --help lists the tasks")
            scores = _scores_of(task)
    except UsageError as error:
        task_parser.error(str(error))
    except (ValueError, OSError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    if hasattr(scores, "run"):
        parser = scores.make_parser(prog)
        parser.add_argument("--task", metavar="NAME", help=argparse.SUPPRESS)  # read above
        return run_command(parser, scores.run, list(map(_spaced, arguments)))
    parser = make_parser(prog)
    return run_command(parser, partial(run, task=task, scores=scores), arguments)


def _is_generated(file: str) -> bool:
    """Whether an argument is a file that fairseq-generate printed."""
    if not Path(file).is_file():
        return False
    from fairseq_poolingformer.tasks.summarization.scores import is_generate_output

    with opened(file) as content:
        return is_generate_output(io.TextIOWrapper(content, encoding="utf-8", errors="replace"))


def _spaced(argument: str) -> str:
    """Put a space before a negative number, since argparse takes -1e-3 and -inf for options."""
    try:
        float(argument)
    except ValueError:
        return argument
    return f" {argument}"


def make_parser(prog: str = "poolingformer score") -> argparse.ArgumentParser:
    """Return the parser for a task without options of its own."""
    figures = {name: task.figures for name, task in registry.tasks().items() if task.figures}
    width = max(map(len, figures))
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Compute the official figures of predictions, without the official scripts.",
        epilog=_EPILOG.format(figures="\n".join(f"  {name:{width}}  {text}" for name, text in figures.items())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_gold(parser, "the released files with the answers")
    add_predicted_only(parser)
    text = "whose predictions these are (default: the task of the data folder that --gold lies in; summaries where "
    text += "--references are given or the predictions are fairseq-generate's output)"
    parser.add_argument("--task", metavar="NAME", help=text)
    add_user_dir(parser)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write every figure here, unrounded")
    return parser


def run(args: argparse.Namespace, task: str, scores: ModuleType) -> None:
    """Print the figures and write them to ``--json``."""
    # predicted_only, where others than predicted examples count
    options = {name: getattr(args, name) for name in list(signature(scores.score).parameters)[2:]}
    figures = scores.score(list(map(Path, args.gold)), Path(given_predictions(args)), **options)
    width = max(map(len, figures))
    for name, figure in figures.items():
        digits = 4 if 0 < abs(figure) < 1 else 2  # as of a correlation
        shown = f"{figure:.{digits}f}" if isinstance(figure, float) else f"{figure:,}"
        print(f"{name:{width}}  {shown}")
    if args.json:
        write_lines(args.json, [json.dumps({"kind": task, **figures}, indent=1)])


def _scores_of(name: str) -> Any:
    known = {task.name: task for task in registry.tasks().values() if task.figures}
    if name not in known:
        raise UsageError(f"--task {name}: no such task; choose one of {', '.join(known)}")
    return known[name].scores()

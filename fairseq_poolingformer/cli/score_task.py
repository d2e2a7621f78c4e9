"""``poolingformer-score-task``: the official figures of the downstream tasks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fairseq_poolingformer.cli.command import run_command
from fairseq_poolingformer.tasks.registry import TASKS
from fairseq_poolingformer.text.whole_file import write_lines

_OTHERS = ("long_summarization", "question_answering")  # have commands of their own
KINDS = {name: task.figures for name, task in TASKS.items() if task.figures and name not in _OTHERS}
_EPILOG = """\
kinds and figures:
{kinds}

examples:
  poolingformer-score-task wikihop --gold qangaroo_v1.1/wikihop/dev.json --predictions predictions.json
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    width = max(map(len, KINDS))
    parser = argparse.ArgumentParser(
        prog="poolingformer-score-task",
        description="Compute the official figures of a downstream task, without the official scripts.",
        epilog=_EPILOG.format(kinds="\n".join(f"  {kind:{width}}  {text}" for kind, text in KINDS.items())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=list(KINDS), metavar="KIND", help=f"one of {', '.join(KINDS)}")
    parser.add_argument(
        "--gold", nargs="+", type=Path, required=True, metavar="FILE", help="the released files with the answers"
    )
    parser.add_argument("--predictions", type=Path, required=True, metavar="FILE", help="in the official format")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure here, unrounded")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the figures and write them to ``--json``."""
    figures = TASKS[args.kind].module("scores").score(args.gold, args.predictions)
    width = max(map(len, figures))
    for name, figure in figures.items():
        print(f"{name:{width}}  {figure:.2f}" if isinstance(figure, float) else f"{name:{width}}  {figure:,}")
    if args.json:
        write_lines(args.json, [json.dumps({"kind": args.kind, **figures}, indent=1)])


if __name__ == "__main__":
    sys.exit(main())

"""What the command lines of all corpora share."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from preprocess.pipeline import run
from preprocess.pipeline.records import InputError
from preprocess.pipeline.vocabulary import add_tokenizer_options, choose_tokenizer


def make_parser(
    module: str, description: str, default_vocabulary: int | None = None, counts_truncated: bool = True
) -> argparse.ArgumentParser:
    """A parser with the options that every corpus has.

    Args:
        module: its name on the command line.
        description: what it does.
        default_vocabulary: size of the sentencepiece model that is trained where no tokenizer is named.
        counts_truncated: whether ``--max-source-length`` is among them.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    add_tokenizer_options(parser, default_vocabulary)
    options = parser.add_argument_group("output")
    options.add_argument("--output-folder", metavar="DIR", type=Path, required=True, help="the data folder to make")
    if counts_truncated:
        options.add_argument(
            "--max-source-length",
            metavar="N",
            type=int,
            nargs="+",
            default=[4096, 16384],
            help="report how many inputs these lengths in tokens would truncate; nothing is truncated here "
            "(default: 4096 16384)",
        )
    options.add_argument(
        "--limit", metavar="N", type=int, help="use only the first N good training examples, in the order of the input"
    )
    options.add_argument(
        "--max-reject-fraction",
        metavar="F",
        type=float,
        default=0.01,
        help="stop with an error where more of a split than this is bad (default: %(default)s)",
    )
    options.add_argument("--overwrite", action="store_true", help="replace another corpus that stands in the folder")
    options.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=_cores(),
        help="number of processes; the result does not depend on it (default: the number of cores, %(default)s)",
    )
    return parser


def main(parser: argparse.ArgumentParser, make_corpus: Callable[[argparse.Namespace], run.Corpus]) -> int:
    """Runs a corpus's command line; returns the exit status."""
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger("preprocess").setLevel(logging.INFO)
    if args.workers < 1:
        parser.error(f"--workers {args.workers}: must be 1 or more")
    if args.limit is not None and args.limit < 1:
        parser.error(f"--limit {args.limit}: must be 1 or more")
    options = run.Options(
        output_folder=args.output_folder,
        workers=args.workers,
        limit=args.limit,
        max_reject_fraction=args.max_reject_fraction,
        max_source_lengths=tuple(args.max_source_length),
        overwrite=args.overwrite,
    )
    try:
        corpus = make_corpus(args)
        tokenizer = choose_tokenizer(args, corpus)
        print(run.run(corpus, tokenizer.make, tokenizer.settings, options))
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

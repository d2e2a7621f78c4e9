"""The options that the command lines of all corpora share, and the way they run."""

import argparse
import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_poolingformer.command import run_command
from fairseq_poolingformer.options import positive, share
from fairseq_poolingformer.text.atomic_write import disk_errors

from . import run
from .records import MAX_LINE_BYTES
from .vocabulary import add_tokenizer_options, choose_tokenizer

logger = logging.getLogger("preprocess")


Options = argparse._ActionsContainer  # a parser, or a group of it


def add_number(
    options: Options, flag: str, default: float, text: str, metavar: str = "N", kind: Callable[[str], float] = positive
) -> None:
    """Add an option that takes a number; its help is a text and the default."""
    text += " (default: %(default)s)"
    options.add_argument(flag, metavar=metavar, type=kind, default=default, help=text)


def add_lengths(options: Options, flag: str, default: Sequence[int], text: str) -> None:
    """Add an option that takes the lengths that a table reports; its help is a text and the default."""
    text += f" (default: {' '.join(map(str, default))})"
    dest = "max_source_length"
    options.add_argument(flag, metavar="N", dest=dest, type=positive, nargs="+", default=list(default), help=text)


def add_max_line_bytes(options: Options) -> None:
    """Add ``--max-line-bytes`` of corpora in lines."""
    add_number(options, "--max-line-bytes", MAX_LINE_BYTES, "reject longer lines without loading them")


def make_parser(
    corpus: str, description: str, default_vocabulary: int | None = None, counts_truncated: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with the options that every corpus has."""
    parser = argparse.ArgumentParser(prog=f"poolingformer preprocess {corpus}", description=description.split("\n")[0])
    add_tokenizer_options(parser, default_vocabulary)
    options = parser.add_argument_group("output")
    options.add_argument("--output-folder", metavar="DIR", type=Path, required=True, help="the data folder to make")
    if counts_truncated:
        text = "report how many inputs these lengths in tokens would truncate; nothing is truncated here"
        add_lengths(options, "--max-source-length", [4096, 16384], text)
    text = "use only the first N good training examples, in the order of the input"
    options.add_argument("--limit", metavar="N", type=positive, help=text)
    text = "stop with an error where more of a split than this is bad"
    add_number(options, "--max-reject-fraction", 0.01, text, "F", share)
    options.add_argument("--overwrite", action="store_true", help="replace another corpus in the folder")
    workers = "number of processes; the result does not depend on it (default: the number of cores, %(default)s)"
    options.add_argument("--workers", metavar="N", type=positive, default=_cores(), help=workers)
    return parser


def main_of(module: str, make_parser: Callable, make_corpus: Callable) -> Callable[..., int]:
    """The ``main`` of a corpus's module, given its ``__name__``; ``python -m`` of the module runs it at once."""
    if module == "__main__":  # workers know the module by its own name alone
        sys.exit(importlib.import_module(sys.modules[module].__spec__.name).main())
    return functools.partial(main, make_parser, make_corpus)


def main(
    make_parser: Callable[[], argparse.ArgumentParser],
    make_corpus: Callable[[argparse.Namespace], run.Corpus],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a corpus's command line."""
    return run_command(make_parser(), functools.partial(_run, make_corpus), arguments)


def _run(make_corpus: Callable[[argparse.Namespace], run.Corpus], args: argparse.Namespace) -> None:
    log_to_stderr()
    try:
        corpus = make_corpus(args)
        with disk_errors(args.output_folder, args.output_folder):
            print(run.run(corpus, choose_tokenizer(args, corpus), args))
    except KeyboardInterrupt:
        logger.warning("stopped. Run the same command again; it continues from here")
        raise


def log_to_stderr() -> None:
    """Log preprocessing in full, and the warnings of other packages."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger("preprocess").setLevel(logging.INFO)


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

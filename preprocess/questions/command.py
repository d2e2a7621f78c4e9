"""The part that the command lines of question answering corpora share."""

import argparse
import functools
from collections.abc import Callable

from fairseq_poolingformer.tasks.question_answering.examples import QuestionAnsweringSplit, SegmentLimits

from ..pipeline import command as pipeline_command
from ..pipeline import task_corpus
from ..pipeline.records import MAX_LINE_BYTES, InputError, read_lines
from ..pipeline.run import Corpus
from . import examples, report

main = pipeline_command.main


def make_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has."""
    parser = task_corpus.make_encoder_parser(corpus, description)
    task_corpus.add_inputs(parser, "JSON lines, plain or .gz")
    parser.add_argument(
        "--max-line-bytes",
        metavar="N",
        type=int,
        default=MAX_LINE_BYTES,
        help="reject longer lines without loading them (default: %(default)s)",
    )
    lengths = parser.add_argument_group("report (nothing is cut here)")
    lengths.add_argument(
        "--max-positions",
        metavar="N",
        dest="max_source_length",
        type=int,
        nargs="+",
        default=[4096],
        help="report how many segments of at most so many tokens the documents make; several values are allowed "
        "(default: 4096)",
    )
    lengths.add_argument(
        "--doc-stride",
        metavar="N",
        type=int,
        default=1568,
        help="document tokens from the beginning of a segment to that of the next one, in that report "
        "(default: %(default)s)",
    )
    return parser


def make_corpus(args: argparse.Namespace, kind: str, unit: str, parse: Callable, settings: dict) -> Corpus:
    """Describe the corpus that the command line names.

    Args:
        args: parsed options of :func:`make_parser`.
        kind: name of the corpus.
        unit: the unit of its offsets, "byte" or "token".
        parse: record to example; takes ``annotated``, whether to read annotations.
        settings: everything that changes the result of ``parse``, as JSON values.

    Raises:
        InputError: a file is missing, or options contradict each other.
    """
    corpus = task_corpus.make_corpus(
        args,
        kind,
        kind,
        QuestionAnsweringSplit.layout,
        functools.partial(read_lines, max_line_bytes=args.max_line_bytes),
        parse,
        examples.encode,
        settings={**settings, "max_line_bytes": args.max_line_bytes},
        # 2: ids are JSON values, and GPT-2's tokens have the offsets of whole characters
        entries={"unit": unit, "format": 2},
        table=functools.partial(report.table, doc_stride=args.doc_stride),
    )
    for length in args.max_source_length:
        try:
            SegmentLimits(length, args.doc_stride)
        except ValueError as error:
            raise InputError(f"--max-positions {length} --doc-stride {args.doc_stride}: {error}") from error
    return corpus

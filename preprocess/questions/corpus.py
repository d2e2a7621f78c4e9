"""The part that question answering corpora share: options, corpus, and the table of segments and kinds of answers."""

import argparse
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.question_answering.examples import (
    QuestionAnsweringSplit,
    SegmentLimits,
    Segments,
    cut_into_segments,
)
from fairseq_poolingformer.tasks.question_answering.labels import (
    Answers,
    AnswerType,
    Label,
    count_longer,
    label_segments,
    read_answers,
)
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.text.table import aligned

from ..pipeline import command, task_corpus
from ..pipeline.records import InputError, read_lines
from ..pipeline.report import Made, count_notes
from ..pipeline.run import Corpus
from . import examples

DOC_STRIDE = 1568


def make_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has."""
    parser = task_corpus.make_encoder_parser(corpus, description)
    task_corpus.add_inputs(parser, "JSON lines, plain or .gz")
    command.add_max_line_bytes(parser)
    lengths = parser.add_argument_group("report (nothing is cut here)")
    text = "report how many segments of at most N tokens the documents make; several values are allowed"
    command.add_lengths(lengths, "--max-positions", [4096], text)
    text = "document tokens from the beginning of a segment to that of the next one, in that report"
    command.add_number(lengths, "--doc-stride", DOC_STRIDE, text)
    return parser


def make_corpus(
    args: argparse.Namespace, name: str, unit: str, parse: Callable, settings: Mapping[str, object]
) -> Corpus:
    """Describe the corpus that the command line names."""
    corpus = task_corpus.make_corpus(
        args,
        functools.partial(read_lines, max_line_bytes=args.max_line_bytes),
        parse,
        name=name,
        layout=QuestionAnsweringSplit.layout,
        encode=examples.encode,
        settings={**settings, "max_line_bytes": args.max_line_bytes},
        # 2: ids are JSON values, and GPT-2's tokens have the offsets of whole characters
        entries={"unit": unit, "format": 2},
        table=functools.partial(table, doc_stride=args.doc_stride),
    )
    for length in args.max_source_length:
        try:
            SegmentLimits(length, args.doc_stride)
        except ValueError as error:
            raise InputError(f"--max-positions {length} --doc-stride {args.doc_stride}: {error}") from error
    return corpus


def table(made: Made, doc_stride: int = DOC_STRIDE) -> str:
    """Report examples, lengths in tokens, segments and answers of each split, and of each language of several.

    The answer of an example is the one that training takes from its annotations. "without segment" counts the answers
    that fit in no segment of that length.
    """
    head = [made.name, "examples", "question median", "document median", "90th"]
    for length in made.lengths:
        head += [f"segments of {length}", "without segment"]
    rows, lines = [[*head, *(kind.name.lower() for kind in AnswerType), "rejected"]], []
    for split in made.splits:
        data = QuestionAnsweringSplit.open(made.folder.path, split)
        answers = read_answers(data)
        cuts = [_cut(data, answers, length, doc_stride) for length in made.lengths]
        rows.append([*_row(split, data, answers, cuts, np.ones(len(data), bool)), str(made.rejects[split])])
        languages = _languages(made.folder.text(split, "id"))
        if len(set(languages)) > 1:
            for language in np.unique(languages):
                rows.append([*_row(f"  {language}", data, answers, cuts, languages == language), ""])
        lines += count_notes(split, made.folder.text(split, "notes"))
        longer = count_longer(answers, MAX_ANSWER_LENGTH)
        if longer:
            lines.append(f"{split}: {longer} × short answer of more than {MAX_ANSWER_LENGTH} tokens")
    return "\n".join([aligned(rows), *lines])


def _cut(
    data: QuestionAnsweringSplit, answers: Answers, max_positions: int, doc_stride: int
) -> tuple[Segments, np.ndarray]:
    """Return the segments, and (n,) True at examples whose answer fits in no segment."""
    limits = SegmentLimits(max_positions, doc_stride)
    segments = cut_into_segments(data.question.sizes, data.document.sizes, limits)
    is_answered = np.zeros(len(data), bool)
    is_answered[segments.example[label_segments(segments, answers) == Label.POSITIVE]] = True
    return segments, (answers.answer_type != AnswerType.NULL) & ~is_answered


def _row(
    name: str,
    data: QuestionAnsweringSplit,
    answers: Answers,
    cuts: list[tuple[Segments, np.ndarray]],
    chosen: np.ndarray,
) -> list[str]:
    count = int(np.count_nonzero(chosen))
    row = [name, str(count), f"{np.median(data.question.sizes[chosen]):.0f}"]
    row += [f"{value:.0f}" for value in np.percentile(data.document.sizes[chosen], [50, 90])]
    for segments, without in cuts:
        row += [str(np.count_nonzero(chosen[segments.example])), str(np.count_nonzero(without & chosen))]
    if not len(data.annotation.values):
        return row + [""] * len(AnswerType)
    counts = np.bincount(answers.answer_type[chosen], minlength=len(AnswerType))
    return [*row, *(f"{100 * number / count:.1f} %" for number in counts)]


def _languages(path: Path) -> np.ndarray:
    with open(path, encoding="utf-8") as lines:
        return np.array([line.rstrip("\n").partition("\t")[2] for line in lines])

"""Questions about whole documents: from checked records of any corpus to the arrays of the data folder, and its table.

Offsets count the corpus's own unit, bytes of the document's text in UTF-8 or tokens of the corpus, and are half-open.
"""

import argparse
import bisect
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.tasks.question_answering.data import (
    Answers,
    AnswerType,
    Label,
    QuestionAnsweringSplit,
    SegmentLimits,
    Segments,
    count_longer,
    cut_into_segments,
    label_segments,
    read_answers,
)
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.tokenizers import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, Tokens
from .pipeline.records import Example, Reject, read_lines
from .pipeline.report import Made, count_notes
from .pipeline.run import Corpus

DOC_STRIDE = 1568
NESTED = "long answer inside another candidate"
SEVERAL = "several short answers"
NOT_EXACT = "short answer not on token edges"
NO_TEXT = "answer without text"
MARKERS = ("paragraph", "table", "list")


@dataclass(frozen=True)
class Candidate:
    """A piece of a document that can be the long answer; ``index`` is its number in the corpus."""

    index: int
    start: int
    end: int


@dataclass(frozen=True)
class AnnotatedAnswer:
    """One annotator's answer."""

    answer_type: AnswerType
    paragraph: int = -1
    start: int = -1
    end: int = -1


@dataclass(frozen=True)
class QuestionExample(Example):
    """A question about a document; ``texts`` are the question and the document."""

    paragraphs: tuple[Candidate, ...]  # ascending and disjoint
    annotations: tuple[AnnotatedAnswer, ...]  # any number of them
    notes: tuple[str, ...]  # kinds of oddities of this example, which the report counts
    # (W,) where the unit is the token: numbers of the corpus's tokens that make the document's text, joined by single
    # spaces. None where the unit is the byte.
    words: np.ndarray | None = None
    # the kind of each paragraph, a number in :data:`MARKERS`; None without markers
    markers: tuple[int, ...] | None = None


def outermost(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that lie in no other one, ascending."""
    outer: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: (candidate.start, -candidate.end)):
        if not outer or candidate.start >= outer[-1].end:
            outer.append(candidate)
        elif candidate.end > outer[-1].end:
            raise BadLine(f"candidates overlap: numbers {outer[-1].index} and {candidate.index}")
    return tuple(outer)


def annotations_of(fields: dict) -> list:
    """Return the annotations, one or more, unchecked."""
    annotations = json_values.list_of(fields, "annotations")
    if not annotations:
        raise BadLine("no annotations: only --test files need none")
    return annotations


def checked_answer(
    candidates: Sequence[Candidate],
    paragraphs: Sequence[Candidate],
    candidate_index: int,
    spans: Sequence[tuple[int, int]],
    yes_no: str,
    notes: list[str],
) -> AnnotatedAnswer:
    """Check an annotator's answer; several short ones become one, first start to last end (Alberti et al. 2019)."""
    if candidate_index == -1:
        if spans or yes_no != "NONE":
            raise BadLine("answer without a long answer: a short answer, yes or no, where candidate_index is -1")
        return AnnotatedAnswer(AnswerType.NULL)
    if not 0 <= candidate_index < len(candidates):
        raise BadLine(f"candidate out of range: candidate_index {candidate_index} of {len(candidates)} candidates")
    candidate = candidates[candidate_index]
    row = bisect.bisect_right(paragraphs, candidate.start, key=lambda paragraph: paragraph.start) - 1
    if row < 0 or candidate.start == candidate.end or candidate.end > paragraphs[row].end:
        raise BadLine(f"long answer in no paragraph: candidate {candidate_index}")
    if paragraphs[row] != candidate:
        notes.append(NESTED)
    for start, end in spans:
        if not candidate.start <= start < end <= candidate.end:
            raise BadLine(
                f"short answer outside the long answer: {start} to {end}, where candidate {candidate_index} is "
                f"{candidate.start} to {candidate.end}"
            )
    if yes_no != "NONE":
        return AnnotatedAnswer(AnswerType[yes_no], row)
    if not spans:
        return AnnotatedAnswer(AnswerType.LONG, row)
    if len(spans) > 1:
        notes.append(SEVERAL)
    return AnnotatedAnswer(AnswerType.SHORT, row, min(start for start, _ in spans), max(end for _, end in spans))


def encode(tokenizer: Tokenizer, example: QuestionExample) -> Encoded | Reject:
    """Make the arrays of :mod:`fairseq_poolingformer.tasks.question_answering.data` for an example."""
    # An answer is all tokens that share text with it. A short answer without a token becomes a long one, a long one
    # without any has no paragraph; notes say so
    question = tokenizer.encode(example.texts[0])
    if not len(question):
        return Reject("empty question")
    tokens = Tokens(*tokenizer.encode_with_offsets(example.texts[1]))
    if not len(tokens.full):
        return Reject("empty document")
    if example.words is not None:
        tokens = _in_words(tokens, example.texts[1], example.words)
    spans = np.array([(paragraph.start, paragraph.end) for paragraph in example.paragraphs], np.int64).reshape(-1, 2)
    first, end = tokens.of_span(spans[:, 0], spans[:, 1])
    first[1:] = np.maximum(first[1:], np.maximum.accumulate(end)[:-1])
    row_of_paragraph = np.where(first < end, np.cumsum(first < end) - 1, -1)
    notes = list(example.notes)
    places = np.column_stack([first, end])
    rows = [_annotation_row(answer, tokens, places, row_of_paragraph, notes) for answer in example.annotations]
    annotations = np.array(rows, np.int64).reshape(-1, 4)
    index = [paragraph.index for paragraph in example.paragraphs]
    paragraphs = np.column_stack([first, end, np.array(index, np.int64), spans])[first < end]
    if example.markers is not None:
        kinds = np.array(example.markers, np.int64)[first < end]
        tokens = _insert_markers(tokens, _marker_ids(tokenizer)[kinds], paragraphs, annotations)
    arrays = {"question": question, "document": tokens.ids, "start": tokens.starts, "end": tokens.ends}
    arrays |= {"paragraph": paragraphs.ravel(), "annotation": annotations.ravel()}
    return Encoded(arrays, {"id": example.id, "notes": "; ".join(notes)})


def _in_words(tokens: Tokens, text: str, words: np.ndarray) -> Tokens:
    """Change offsets to the corpus's own tokens; each token lies in one of them, and an empty token stays empty."""
    spaces = np.flatnonzero(np.frombuffer(text.encode("utf-8"), np.uint8) == ord(" "))
    starts = words[np.searchsorted(spaces, tokens.starts)]
    last = words[np.searchsorted(spaces, np.maximum(tokens.ends - 1, 0))]
    ends = np.where(tokens.ends > tokens.starts, last + 1, starts)
    return Tokens(tokens.ids, starts, np.maximum.accumulate(ends))


def _annotation_row(
    answer: AnnotatedAnswer, tokens: Tokens, places: np.ndarray, row_of_paragraph: np.ndarray, notes: list[str]
) -> tuple[int, int, int, int]:
    if answer.paragraph < 0:
        return answer.answer_type, -1, -1, -1
    row = int(row_of_paragraph[answer.paragraph])
    is_short = answer.answer_type == AnswerType.SHORT
    if not is_short and row >= 0:
        return answer.answer_type, row, -1, -1
    first, end = (int(x[0]) for x in tokens.of_span(np.array([answer.start]), np.array([answer.end])))
    first, end = max(first, int(places[answer.paragraph, 0])), min(end, int(places[answer.paragraph, 1]))
    if row < 0 or first >= end:
        notes.append(NO_TEXT)
        return AnswerType.LONG if is_short else answer.answer_type, row, -1, -1
    if tokens.starts[first] != answer.start or tokens.ends[end - 1] != answer.end:
        notes.append(NOT_EXACT)
    return AnswerType.SHORT, row, first, end


def _marker_ids(tokenizer: Tokenizer) -> np.ndarray:
    spare = tokenizer.spare_symbols()[: len(MARKERS)]
    if len(spare) < len(MARKERS):
        raise ValueError(
            f"--html-tokens markers: the dictionary has {len(spare)} of the {len(MARKERS)} spare symbols that mark "
            "paragraphs, tables and lists (madeupword0000 and so on, as in fairseq's dict.txt of GPT-2 BPE). Take "
            "--gpt2-bpe with that dict.txt, or --html-tokens drop, or --html-tokens keep"
        )
    return np.array(spare)


def _insert_markers(tokens: Tokens, ids: np.ndarray, paragraphs: np.ndarray, annotations: np.ndarray) -> Tokens:
    """Insert a symbol without text before each paragraph, and move the positions in both tables."""
    first = paragraphs[:, 0].copy()
    starts = tokens.starts[first]
    before = np.arange(len(first))
    paragraphs[:, 0] += before
    paragraphs[:, 1] += before + 1
    short = annotations[:, 2] >= 0
    for column, shift in ((2, 0), (3, -1)):
        position = annotations[short, column]
        annotations[short, column] += np.searchsorted(first, position + shift, side="right")
    ends = np.insert(tokens.ends, first, starts)
    return Tokens(np.insert(tokens.ids, first, ids), np.insert(tokens.starts, first, starts), ends)


def make_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has."""
    parser = command.make_parser(corpus, description, counts_truncated=False)
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
        encode=encode,
        settings={**settings, "max_line_bytes": args.max_line_bytes},
        # 2: ids are JSON values, and GPT-2's tokens have the offsets of whole characters
        entries={"unit": unit, "format": 2},
        table=functools.partial(table, doc_stride=args.doc_stride),
    )
    for length in args.max_source_length:
        try:
            SegmentLimits(length, args.doc_stride)
        except ValueError as error:
            raise ValueError(f"--max-positions {length} --doc-stride {args.doc_stride}: {error}") from error
    return corpus


def table(made: Made, doc_stride: int = DOC_STRIDE) -> str:
    """Report each split's and language's examples, lengths, segments, and answers that training takes."""
    head = [made.name, "examples", "question median", "document median", "90th"]
    for length in made.lengths:
        head += [f"segments of {length}", "without segment"]
    rows, lines = [[*head, *(kind.name.lower() for kind in AnswerType), "rejected"]], []
    for split in made.splits:
        data = QuestionAnsweringSplit.open(made.folder.path, split)
        answers = read_answers(data)
        cuts = [_cut(data, answers, length, doc_stride) for length in made.lengths]
        rows.append([*_row(split, data, answers, cuts, np.ones(len(data), bool)), str(made.rejects[split])])
        with open(made.folder.text(split, "id"), encoding="utf-8") as lines_of_ids:
            languages = np.array([line.rstrip("\n").partition("\t")[2] for line in lines_of_ids])
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

"""Answers as people gave them: their places in documents, annotations, and the files in which corpora are released."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.text.json_values import (
    as_object,
    example_id_of,
    integer_of,
    list_of,
    read_object,
    text_of,
    yes_no_of,
)

NATURAL_QUESTIONS, TYDIQA = "natural_questions", "tydiqa"  # "kind" of a data folder's corpus.json


@dataclass(frozen=True)
class Span:
    """A piece of a document, half-open, in bytes, in tokens or in both; -1 where an offset is not known.

    Natural Questions counts bytes of the HTML and its own document tokens; TyDi QA counts UTF-8 bytes of the plain
    text and has no tokens.
    """

    start_byte: int = -1
    end_byte: int = -1
    start_token: int = -1
    end_token: int = -1

    @property
    def has_bytes(self) -> bool:
        """Whether both byte offsets are known."""
        return self.start_byte >= 0 and self.end_byte >= 0

    @property
    def has_tokens(self) -> bool:
        """Whether both token offsets are known."""
        return self.start_token >= 0 and self.end_token >= 0

    @property
    def is_null(self) -> bool:
        """Whether this is no answer."""
        return not (self.has_bytes or self.has_tokens)

    def matches(self, other: Span) -> bool:
        """Whether both are the same piece, by bytes or by tokens: one unit that both know and agree in is enough."""
        by_bytes = (self.start_byte, self.end_byte) == (other.start_byte, other.end_byte)
        by_tokens = (self.start_token, self.end_token) == (other.start_token, other.end_token)
        return (self.has_bytes and by_bytes) or (self.has_tokens and by_tokens)


NO_SPAN = Span()


def natural_questions_span(value: object, where: str) -> Span:
    """Read the span of Natural Questions' four keys; bytes or tokens that are missing are -1."""
    record = as_object(value, where)
    keys = ("start_byte", "end_byte", "start_token", "end_token")
    offsets = [integer_of(record, key, -1) for key in keys]
    for start, end in (offsets[:2], offsets[2:]):
        _check_offsets(where, start, end)
        if 0 <= start == end:
            raise ValueError(f"{where}: start and end are equal; ends are exclusive, so the span is empty")
    return Span(*offsets)


def tydiqa_span(value: object, where: str, start_key: str, end_key: str) -> Span:
    """Read the span of TyDi QA's two keys, which gold data and predictions name differently."""
    record = as_object(value, where)
    start, end = integer_of(record, start_key), integer_of(record, end_key)
    _check_offsets(where, start, end)
    return Span(start, end)


def _check_offsets(where: str, start: int, end: int) -> None:
    if (start < 0) != (end < 0):
        raise ValueError(f"{where}: start {start}, end {end}: no answer is -1 and -1")
    if start > end:
        raise ValueError(f"{where}: start {start} is after end {end}")


TYDIQA_KEYS = ("plaintext_start_byte", "plaintext_end_byte")


@dataclass(frozen=True)
class NaturalQuestionsAnnotation:
    """One annotator's answers: the long one or ``NO_SPAN``, the short spans, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    long_answer: Span
    short_answers: tuple[Span, ...]
    yes_no_answer: str


@dataclass(frozen=True)
class TydiqaAnnotation:
    """One annotator's answers: a passage's number or -1, bytes or ``NO_SPAN``, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    passage_answer_index: int
    minimal_answer: Span
    yes_no_answer: str


def natural_questions_annotation(value: object, where: str) -> NaturalQuestionsAnnotation:
    """Read an annotation of Natural Questions, in the original or the simplified format."""
    record = as_object(value, where)
    long_answer = natural_questions_span(record.get("long_answer"), f"{where}.long_answer")
    short_answers = tuple(
        natural_questions_span(span, f"{where}.short_answers[{number}]")
        for number, span in enumerate(list_of(record, "short_answers"))
    )
    return NaturalQuestionsAnnotation(long_answer, short_answers, yes_no_of(record))


def tydiqa_annotation(value: object, where: str) -> TydiqaAnnotation:
    """Read an annotation of TyDi QA's primary tasks; arguments and errors as above."""
    record = as_object(value, where)
    passage = as_object(record.get("passage_answer"), f"{where}.passage_answer")
    minimal = tydiqa_span(record.get("minimal_answer"), f"{where}.minimal_answer", *TYDIQA_KEYS)
    return TydiqaAnnotation(integer_of(passage, "candidate_index"), minimal, yes_no_of(record))


Annotation = NaturalQuestionsAnnotation | TydiqaAnnotation


@dataclass(frozen=True)
class GoldExample:
    """The annotators' answers to one question.

    Attributes:
        example_id: as in the corpus.
        annotations: at least one, all of the example's kind.
        language: TyDi QA's; empty for Natural Questions.
    """

    example_id: int | str
    annotations: tuple[Annotation, ...]
    language: str = ""

    @property
    def kind(self) -> str:
        """``"natural_questions"`` or ``"tydiqa"``."""
        return TYDIQA if isinstance(self.annotations[0], TydiqaAnnotation) else NATURAL_QUESTIONS


def read_gold(paths: Sequence[str | Path], workers: int = 1) -> tuple[str, dict[int | str, GoldExample]]:
    """Read gold data, a line at a time, and keep only the annotations."""
    if workers > 1 and len(paths) > 1:
        with ProcessPoolExecutor(min(workers, len(paths))) as pool:
            return _collect(paths, pool.map(_read_file, paths))
    return _collect(paths, map(_read_file, paths))


def _collect(
    paths: Sequence[str | Path], files: Iterator[list[tuple[int, GoldExample]]]
) -> tuple[str, dict[int | str, GoldExample]]:
    gold: dict[int | str, GoldExample] = {}
    first: GoldExample | None = None
    for path, examples in zip(paths, files, strict=True):
        for line, example in examples:
            first = first or example
            if example.kind != first.kind:
                raise ValueError(f"{path}, line {line}: {example.kind} among {first.kind}: score one corpus at a time")
            if example.example_id in gold:
                raise ValueError(f"{path}, line {line}: example {example.example_id} comes a second time")
            gold[example.example_id] = example
    if first is None:
        raise ValueError(f"{', '.join(map(str, paths))}: no examples in it")
    return first.kind, gold


def _read_file(path: str | Path) -> list[tuple[int, GoldExample]]:
    """The examples of a file with their line numbers."""
    examples = []
    number = 0
    try:
        with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    examples.append((number, _example(line)))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file after line {number} ({error})") from None
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    return examples


def _example(line: bytes) -> GoldExample:
    record = read_object(line)
    if "annotations" not in record:
        raise ValueError("no 'annotations': is this gold data? Those of a test set are not public")
    values = list_of(record, "annotations")
    if not values:
        raise ValueError(
            f"example {record.get('example_id')} has an empty list of annotations; those of a test set are not public"
        )
    first = as_object(values[0], "annotations[0]")
    if "passage_answer" in first:
        read, language = tydiqa_annotation, text_of(record, "language")
    elif "long_answer" in first:
        read, language = natural_questions_annotation, ""
    else:
        raise ValueError("an annotation must have 'long_answer' (Natural Questions) or 'passage_answer' (TyDi QA)")
    found = tuple(read(value, f"annotations[{number}]") for number, value in enumerate(values))
    return GoldExample(example_id_of(record), found, language)

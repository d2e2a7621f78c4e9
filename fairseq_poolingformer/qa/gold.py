"""Reads the annotations that predictions are compared with, out of the corpora as they are released."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.qa.json_values import (
    as_object,
    example_id_of,
    integer_of,
    list_of,
    natural_questions_span,
    text_of,
    tydiqa_span,
    yes_no_of,
)
from fairseq_poolingformer.qa.official_predictions import NATURAL_QUESTIONS, TYDIQA
from fairseq_poolingformer.qa.spans import Span


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


Annotation = NaturalQuestionsAnnotation | TydiqaAnnotation


@dataclass(frozen=True)
class GoldExample:
    """What the annotators found for one question.

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
    """Read gold data, a line at a time: only the annotations are kept.

    Args:
        paths: JSON lines, plain or ``.gz``: Natural Questions (original or simplified) or TyDi QA's primary tasks.
        workers: files read at the same time, in processes of their own.

    Returns:
        The kind, ``"natural_questions"`` or ``"tydiqa"``, and the examples by their id.

    Raises:
        ValueError: naming file and line, if a line is malformed or without annotations, an example stands twice, or
            the corpora are mixed; or if there is no example at all.
    """
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
                raise ValueError(f"{path}, line {line}: example {example.example_id} stands there a second time")
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
    try:
        record = as_object(json.loads(line), "an example")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg}, column {error.colno})") from None
    if "annotations" not in record:
        raise ValueError("no 'annotations': is this gold data? Those of a test set are not public")
    annotations = [as_object(value, "an annotation") for value in list_of(record, "annotations")]
    if not annotations:
        raise ValueError(
            f"example {record.get('example_id')} has an empty list of annotations; those of a test set are not public"
        )
    if "passage_answer" in annotations[0]:
        found = tuple(map(_tydiqa_annotation, annotations))
        return GoldExample(example_id_of(record), found, text_of(record, "language"))
    if "long_answer" in annotations[0]:
        return GoldExample(example_id_of(record), tuple(map(_natural_questions_annotation, annotations)))
    raise ValueError("an annotation must have 'long_answer' (Natural Questions) or 'passage_answer' (TyDi QA)")


def _natural_questions_annotation(record: dict) -> NaturalQuestionsAnnotation:
    spans = [natural_questions_span(span, "short_answers") for span in list_of(record, "short_answers")]
    return NaturalQuestionsAnnotation(
        natural_questions_span(record.get("long_answer"), "long_answer"), tuple(spans), yes_no_of(record)
    )


def _tydiqa_annotation(record: dict) -> TydiqaAnnotation:
    return TydiqaAnnotation(
        integer_of(as_object(record.get("passage_answer"), "passage_answer"), "candidate_index"),
        tydiqa_span(record.get("minimal_answer"), "minimal_answer", "plaintext_start_byte", "plaintext_end_byte"),
        yes_no_of(record),
    )

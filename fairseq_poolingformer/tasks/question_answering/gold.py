"""Reads the annotations that predictions are compared with from the corpora as they are released."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.tasks.question_answering.annotations import (
    NaturalQuestionsAnnotation,
    TydiqaAnnotation,
    natural_questions_annotation,
    tydiqa_annotation,
)
from fairseq_poolingformer.tasks.question_answering.official_predictions import NATURAL_QUESTIONS, TYDIQA
from fairseq_poolingformer.text.json_lines import read_object
from fairseq_poolingformer.text.json_values import as_object, example_id_of, list_of, text_of

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
    """Read gold data, a line at a time, and keep only the annotations.

    Args:
        paths: JSON lines, plain or ``.gz``: Natural Questions (original or simplified) or TyDi QA's primary tasks.
        workers: files read at the same time, in processes of their own.

    Returns:
        The kind, ``"natural_questions"`` or ``"tydiqa"``, and the examples by their id.

    Raises:
        ValueError: naming file and line, if a line is malformed or without annotations, an example comes twice, or
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

"""Reads and writes files of predictions: Natural Questions' one JSON object, TyDi QA's JSON lines; gzip by suffix."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from fairseq_poolingformer.qa.official_predictions import (
    NATURAL_QUESTIONS,
    TYDIQA,
    NaturalQuestionsPrediction,
    Prediction,
    TydiqaPrediction,
)
from fairseq_poolingformer.text.whole_file import whole_file

# Natural Questions' file; lines of TyDi QA have their keys in any order, but none of this name
_ONE_OBJECT = re.compile(r'\s*\{[^{}]*"predictions"\s*:')


def write_predictions(path: str | Path, kind: str, predictions: Iterable[Prediction]) -> int:
    """Write an official file, one prediction a line in both formats; it appears under its name when it is whole.

    Args:
        path: the file; ``.gz`` at its end compresses it (the official scripts read plain files).
        kind: ``"natural_questions"`` or ``"tydiqa"``.
        predictions: of that kind; may be a generator, and then need not be in memory at once.

    Returns:
        How many there were.
    """
    head, between, tail = {NATURAL_QUESTIONS: ('{"predictions": [\n', ",\n", "\n]}\n"), TYDIQA: ("", "\n", "\n")}[kind]
    count = 0
    with whole_text_file(path) as file:
        file.write(head)
        for prediction in predictions:
            file.write((between if count else "") + json.dumps(prediction.to_json(), ensure_ascii=False))
            count += 1
        file.write(tail if count or head else "")
    return count


@contextlib.contextmanager
def whole_text_file(path: str | Path) -> Iterator[TextIO]:
    """A text file to write, compressed if its name ends in ``.gz``; it gets its name where the block ends well."""
    path = Path(path)
    with (
        whole_file(path) as unfinished,
        (gzip.open if path.suffix == ".gz" else open)(unfinished, "wt", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def read_predictions(path: str | Path) -> tuple[str, dict[int | str, Prediction]]:
    """Read an official file of either kind.

    Args:
        path: the file, plain or ``.gz``.

    Returns:
        The kind, ``"natural_questions"`` or ``"tydiqa"``, and the predictions by example id, in the file's order.

    Raises:
        ValueError: naming the file and the line, or the number of the prediction, that is wrong; also for an example
            that has two predictions, and for a file without any.
    """
    text = _read_text(Path(path))
    if _ONE_OBJECT.match(text):
        return NATURAL_QUESTIONS, _collect(path, _read_object(path, text))
    return TYDIQA, _collect(path, _read_lines(path, text))


def _read_text(path: Path) -> str:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file ({error})") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None


def _read_object(path: str | Path, text: str) -> Iterator[tuple[str, Prediction]]:
    whole = _parse(text, str(path))
    if not isinstance(whole["predictions"], list):
        raise ValueError(f"{path}: 'predictions' must be a list")
    for number, value in enumerate(whole["predictions"], start=1):
        yield _located(f"{path}, prediction {number}", NaturalQuestionsPrediction.from_json, value)


def _read_lines(path: str | Path, text: str) -> Iterator[tuple[str, Prediction]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _located(where, TydiqaPrediction.from_json, _parse(line, where))


def _parse(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f", line {error.lineno}" if "\n" in text else ""
        raise ValueError(f"{where}{place}: not JSON ({error.msg}, column {error.colno})") from None


def _located(where: str, read: Callable[[object], Prediction], value: object) -> tuple[str, Prediction]:
    try:
        return where, read(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _collect(path: str | Path, located: Iterator[tuple[str, Prediction]]) -> dict[int | str, Prediction]:
    by_id: dict[int | str, Prediction] = {}
    places: dict[int | str, str] = {}
    for where, prediction in located:
        if prediction.example_id in by_id:
            raise ValueError(
                f"{where}: example {prediction.example_id} has a prediction already ({places[prediction.example_id]})"
            )
        by_id[prediction.example_id] = prediction
        places[prediction.example_id] = where.removeprefix(f"{path}, ")
    if not by_id:
        raise ValueError(f"{path}: no predictions in it")
    return by_id

"""Files of predictions: Natural Questions' one JSON object, TyDi QA's JSON lines; a name with ``.gz`` is compressed."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    NATURAL_QUESTIONS,
    TYDIQA,
    NaturalQuestionsPrediction,
    Prediction,
    TydiqaPrediction,
)
from fairseq_poolingformer.text.whole_file import whole_file


def write_predictions(path: str | Path, kind: str, predictions: Iterable[Prediction]) -> int:
    """Write an official file, one prediction a line in both formats; it gets its name when it is complete.

    Args:
        path: the file; ``.gz`` at its end compresses it (the official scripts read plain files).
        kind: ``"natural_questions"`` or ``"tydiqa"``.
        predictions: of that kind; a generator keeps one of them in memory at a time.

    Returns:
        The number of predictions.
    """
    head, between, tail = {NATURAL_QUESTIONS: ('{"predictions": [\n', ",\n", "\n]}\n"), TYDIQA: ("", "\n", "\n")}[kind]
    count = 0
    with whole_text_file(path) as file:
        file.write(head)
        for prediction in predictions:
            file.write((between if count else "") + json.dumps(prediction.to_json()))
            count += 1
        file.write(tail if count or head else "")
    return count


@contextlib.contextmanager
def whole_text_file(path: str | Path) -> Iterator[TextIO]:
    """Open a text file to write, compressed if its name ends in ``.gz``; it gets its name when the block ends well."""
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
    text = _read_text(Path(path)).rstrip()
    if not text:
        raise ValueError(f"{path}: no predictions in it")
    begin = len(text) - len(text.lstrip())
    first, end = _parse(lambda text: json.JSONDecoder().raw_decode(text, begin), text, str(path))
    if not isinstance(first, dict) or "predictions" not in first:
        return TYDIQA, _collect(path, _read_lines(path, text))
    if end < len(text):
        raise ValueError(f"{path}: more text after the object with 'predictions'; that object must be the whole file")
    return NATURAL_QUESTIONS, _collect(path, _read_list(path, first["predictions"]))


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


def _read_list(path: str | Path, values: object) -> Iterator[tuple[str, Prediction]]:
    if not isinstance(values, list):
        raise ValueError(f"{path}: 'predictions' must be a list")
    for number, value in enumerate(values, start=1):
        yield _located(f"{path}, prediction {number}", NaturalQuestionsPrediction.from_json, value)


def _read_lines(path: str | Path, text: str) -> Iterator[tuple[str, Prediction]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _located(where, TydiqaPrediction.from_json, _parse(json.loads, line, where))


def _parse(parse: Callable[[str], Any], text: str, where: str) -> Any:
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        place = f", line {error.lineno}" if "\n" in text else ""
        raise ValueError(f"{where}{place}: not JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise ValueError(f"{where}: objects or lists are nested too deeply") from None
    except ValueError:  # Python's limit for one integer
        raise ValueError(f"{where}: a number has thousands of digits") from None


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

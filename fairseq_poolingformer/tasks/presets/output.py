"""Predictions by id, which of them fit gold data, and figures for people and files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file, read_text_file
from fairseq_poolingformer.text.json_values import placed, read_object

_TEXTS = ("prediction", "text", "output", "summary", "answer")


def read_predictions(path: Path) -> dict[str, str]:
    """Read texts by id: a JSON object of them, or lines with ``id`` and ``prediction``, or each with an object."""
    lines = [(number, line) for number, line in enumerate(read_text_file(path).split("\n"), 1) if line.strip()]
    is_lines = path.suffix == ".jsonl" or (len(lines) > 1 and _is_object(lines[0][1]))
    found: dict[str, str] = {}
    for number, fields in _objects(path, lines) if is_lines else [(None, read_json_file(path, unique=True))]:
        where = str(path) if number is None else f"{path}, line {number}"
        key = next((key for key in _TEXTS if "id" in fields and key in fields), None)
        for name, text in fields.items() if key is None else [(str(fields["id"]), fields[key])]:
            if not isinstance(text, str):
                raise ValueError(f"{where}: the prediction of {name!r} must be a string, is {json.dumps(text)[:60]}")
            if name in found:
                raise ValueError(f"{where}: {name!r} comes a second time")
            found[name] = text
    if not found:
        raise ValueError(f"{path}: no predictions in it")
    return found


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line.removeprefix("\ufeff")), dict)
    except (ValueError, RecursionError):
        return False


def _objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict]]:
    for number, line in lines:
        with placed(path, f"line {number}"):
            yield number, read_object(line.encode())


def mismatch(file: str, gold: Collection[str], predictions: Collection[str], may_have_more: bool = False) -> None:
    """Refuse predictions of other ids than those of the gold data."""
    missing = [name for name in gold if name not in predictions]
    more = [] if may_have_more else [name for name in predictions if name not in gold]
    problems = [f"{len(missing)} of {len(gold)} ids have no prediction, such as {missing[0]!r}"] if missing else []
    problems += [f"{len(more)} ids are not in the gold data, such as {more[0]!r}"] if more else []
    if problems:
        hint = "; are they of another split?" if len(missing) == len(gold) else ""
        raise ValueError(f"{file}: {' and '.join(problems)}{hint}")


def print_figures(
    groups: Mapping[str, Mapping[str, float | int]],
    json_file: Path | None,
    entries: Mapping[str, object],
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> None:
    """Print the figures of each group, with their 95% intervals where there are some, and write all to a file."""
    width = max(len(name) for figures in groups.values() for name in figures)
    for group, figures in groups.items():
        if len(groups) > 1:
            print(group)
        for name, figure in figures.items():
            interval = (intervals or {}).get(group, {}).get(name)
            shown = f"{figure:,}" if isinstance(figure, int) else f"{figure:.4f}"
            print(f"{name:{width}}  {shown}" + (f"  [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""))
    if json_file:
        figures = groups if len(groups) > 1 else next(iter(groups.values()))
        more = {"intervals": intervals} if intervals else {}
        write_lines(json_file, [json.dumps({**entries, "figures": figures, **more}, indent=1)])

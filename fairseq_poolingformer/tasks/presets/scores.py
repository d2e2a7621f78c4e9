"""Official figures of predictions for presets, and for all tasks of SCROLLS or ZeroSCROLLS: ``poolingformer-score``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from fairseq_poolingformer.command import add_gold, given_predictions
from fairseq_poolingformer.tasks.presets import PRESETS, SUITES
from fairseq_poolingformer.tasks.presets.metrics import METRICS
from fairseq_poolingformer.tasks.summarization import scores as summaries
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


DIGITS = 4  # to which SCROLLS' script rounds every figure, before it takes the mean of the tasks
_COLUMNS = {"Task", "ID", "Prediction"}


def of(name: str) -> SimpleNamespace:
    """The scores of a preset, or of a suite, as ``poolingformer-score --task`` takes them."""
    return SimpleNamespace(make_parser=partial(make_parser, name), run=partial(run, name))


def make_parser(name: str, prog: str) -> argparse.ArgumentParser:
    what, epilog = f"for all tasks of {name}, and their mean", "FILE is a submission's CSV, or a folder of TASK.json"
    if name in PRESETS:
        what, epilog = (
            f"for {PRESETS[name].help}",
            "FILE has texts by id: a JSON object, or lines with id and prediction",
        )
    about = f"Score predictions {what}."
    parser = argparse.ArgumentParser(prog=f"{prog} --task {name}", description=about, epilog=epilog)
    add_gold(parser, "the released files, archives or folders")
    parser.add_argument("--split", metavar="SPLIT", help="of these files (default: valid, where there are several)")
    if name in PRESETS:
        text = "SPLIT.id.txt of the data folder: the predictions are what fairseq-generate prints for that split"
        parser.add_argument("--ids", metavar="FILE", type=Path, help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and interval here")
    return parser


def run(name: str, args: argparse.Namespace) -> None:
    file = given_predictions(args)
    names = [name] if name in PRESETS else [f"{name}/{task}" for task in SUITES[name]]
    of_suite = {} if name in PRESETS else _of_suite(name, Path(file))
    read_gold = import_module("fairseq_poolingformer.preprocess.presets").gold
    figures: dict[str, dict[str, float | int]] = {}
    intervals = {}
    for one in names:
        gold = read_gold(one, args.gold, args.split)
        if without := [key for key, texts in gold.items() if not texts]:
            print(f"{one}: {len(without)} of {len(gold)} documents have no reference and are left out", file=sys.stderr)
            gold = {key: texts for key, texts in gold.items() if texts}
        predictions = _predictions(file, args.ids, gold) if name in PRESETS else of_suite[one]
        predictions = {key: text for key, text in predictions.items() if key not in without}
        mismatch(file if name in PRESETS else f"{file}, {one}", gold, predictions)
        figures[one], intervals[one] = score(one, gold, predictions)
    if name in SUITES:
        means = [figures[one][METRICS[PRESETS[one].metric].score] for one in names]
        figures[name] = {f"{name}_score": sum(means) / len(means)}
    print_figures(figures, args.json, {"kind": name}, intervals)


def score(
    name: str, gold: Mapping[str, list[str]], predictions: Mapping[str, str]
) -> tuple[dict[str, float | int], dict[str, tuple[float, float]]]:
    """Compute the official figures of one preset, of predictions and of references by the same ids."""
    metric = METRICS[PRESETS[name].metric]
    texts = list(predictions.values())
    values = metric.values(texts, [gold[key] for key in predictions])
    figures = metric.figures(values) | {"mean_prediction_length_characters": sum(map(len, texts)) / len(texts)}
    rounded = {figure: round(value, DIGITS) for figure, value in figures.items()}
    return rounded | {"num_predicted": len(texts)}, metric.intervals(values)


def _predictions(file: str, ids: Path | None, gold: Mapping[str, list[str]]) -> dict[str, str]:
    """The predictions in a file, or those that fairseq-generate printed for the ids of a data folder."""
    if ids is None:
        return read_predictions(Path(file))
    names = read_text_file(ids).splitlines()
    found = summaries.read_generate_output({file: summaries.decode_lines(Path(file).read_bytes(), file)})
    predictions = dict(zip(names, summaries.in_input_order(found, len(names)), strict=True))
    summaries.check_references(found, [gold.get(name, []) for name in names])
    return predictions


def _of_suite(suite: str, path: Path) -> dict[str, dict[str, str]]:
    """The predictions of each task, from a submission's CSV or a folder of a file for each."""
    found: dict[str, dict[str, str]] = {f"{suite}/{task}": {} for task in SUITES[suite]}
    if path.is_dir():
        for task in SUITES[suite]:
            files = [file for file in sorted(path.iterdir()) if re.fullmatch(rf"(?:.*[_.-])?{task}\.jsonl?", file.name)]
            if len(files) != 1:
                raise ValueError(f"{path}: must have one file {task}.json or {task}.jsonl, has {len(files)}")
            found[f"{suite}/{task}"] = read_predictions(files[0])
        return found
    text = read_text_file(path).removeprefix("\ufeff")
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey="more", restval=None, strict=True)
    try:
        if set(rows.fieldnames or ()) != _COLUMNS:
            raise ValueError(f"{path}: the columns must be {', '.join(sorted(_COLUMNS))}, are {rows.fieldnames}")
        for row in rows:
            task, name, text = (row[key] for key in ("Task", "ID", "Prediction"))
            of_task = found.get(f"{suite}/{task}")
            problem = "is of no task of " + suite if of_task is None else "comes a second time" * (name in of_task)
            if row.keys() != _COLUMNS or None in row.values():
                problem = "must have three fields; put quotation marks around those with commas"
            if problem:
                raise ValueError(f"{path}, line {rows.line_num}: {name!r} of {task!r} {problem}")
            of_task[name] = text
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: broken CSV ({error})") from None
    return found

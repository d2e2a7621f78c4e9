"""Official figures of predictions for presets, and for all tasks of SCROLLS or ZeroSCROLLS: ``poolingformer-score``."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from fairseq_poolingformer.command import add_gold, given_predictions
from fairseq_poolingformer.tasks.presets import PRESETS, SUITES
from fairseq_poolingformer.tasks.presets.metrics import METRICS, bert_score
from fairseq_poolingformer.tasks.presets.output import mismatch, print_figures, read_predictions
from fairseq_poolingformer.tasks.summarization import generate_output
from fairseq_poolingformer.text.json_file import read_text_file

DIGITS = 4  # to which SCROLLS' script rounds every figure, before it takes the mean of the tasks
_COLUMNS = {"Task", "ID", "Prediction"}


def of(name: str) -> SimpleNamespace:
    """The scores of a preset, or of a suite, as ``poolingformer-score --task`` takes them."""
    return SimpleNamespace(make_parser=partial(make_parser, name), run=partial(run, name))


def make_parser(name: str, prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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
    text = (
        "BERTScore, too, with this model (default: bert_score's for English); :LAYERS after one that it does not know"
    )
    parser.add_argument("--bertscore", metavar="MODEL", nargs="?", const="", help=text)
    if name in PRESETS:
        text = "SPLIT.id.txt of the data folder: the predictions are what fairseq-generate prints for that split"
        parser.add_argument("--ids", metavar="FILE", type=Path, help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and interval here")
    return parser


def run(name: str, args: argparse.Namespace) -> None:
    """Print the figures, and write them to ``--json``."""
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
        if args.bertscore is not None:
            texts = list(predictions.values())
            model, layers = re.fullmatch(r"(.*?)(?::(\d+))?", args.bertscore).groups()
            references = [gold[key] for key in predictions]
            figures[one] |= bert_score(texts, references, model, layers and int(layers))
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
    found = generate_output.read_generate_output({file: generate_output.decode_lines(Path(file).read_bytes(), file)})
    predictions = dict(zip(names, generate_output.in_input_order(found, len(names)), strict=True))
    generate_output.check_references(found, [gold.get(name, []) for name in names])
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

"""Tables that compare the results of runs.

    python run_scripts/compare.py rouge "model=rouge.json" "lead=rouge-lead.json" ["model=47.86,19.54,42.35" …]
    python run_scripts/compare.py answers "model=scores.json" ["model=-,-,77.5,-,-,58.6" …]
    python run_scripts/compare.py bits|spans "model=test.json" ["model=0.99" …]
    python run_scripts/compare.py masked "model=train.log" ["model=1.705" …]
    python run_scripts/compare.py tasks --row NAME FIGURE PUBLISHED SCORES.json … [--row …]
    python run_scripts/compare.py updates "model=train.log" "other=train.log" …   # validations at equal updates
    python run_scripts/compare.py best FIGURE SCORES.json …      # prints the name of the file with the highest one

All but ``tasks`` have published numbers beside the results: a name may be given with files and once with these; all go
into one row. Files of the same name are seeds of one system: the row has the mean and the range. ``tasks`` reads files
of ``poolingformer score --json`` and gives the mean and the deviation of several trainings. A file that does not exist
leaves its cells empty.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.command import aligned


@dataclass(frozen=True)
class Kind:
    """The figures of a kind of result: its columns, those that papers publish, and its figures as text."""

    title: str
    columns: tuple[str, ...]
    published: tuple[str, ...]
    read: Callable[[dict], list[float]]
    digits: int = 2
    parse: Callable[[str], dict] = json.loads  # of a file's text


def read_rouge(scores: dict) -> list[float]:
    """F1 of rouge-score with stemming, which ``poolingformer score --json`` puts first."""
    rouge = scores["flavours"][0]["scores"]
    return [100 * rouge[name]["f1"]["mean"] for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")]


def read_answers(scores: dict) -> list[float]:
    """Precision, recall and F1 of long and short answers at the best threshold, of ``poolingformer score --json``.

    Of TyDi QA, the averages over languages other than English.
    """
    average = scores["official"].get("average", {})
    if set(scores.get("languages", ())) - {"english"}:
        values = [average[f"avg_{name}_{figure}"] for name in ("passage", "minimal") for figure in FIGURES]
    else:
        values = [scores["all"][name]["best"][figure] for name in ("long", "short") for figure in FIGURES]
    return [100 * value for value in values]


def read_bits(result: dict) -> list[float]:
    """Bits per character, as ``poolingformer eval-lm --output`` writes them."""
    return [result["bpc"]]


def read_span(result: dict) -> list[float]:
    """The mean of the learned spans, in bytes, with the ramp, as papers publish it."""
    return [result["average_span"] + result["span_ramp"]]


def read_loss(values: dict) -> list[float]:
    """Bits per masked token of the last validation, of a training's log."""
    return [float(values["valid_loss"])]


def validations(text: str) -> list[dict]:
    """The validations in the log of a training, ``--log-format json``."""
    lines = (json.loads(line) for line in text.splitlines() if line.startswith('{"') and line.endswith("}"))
    return [values for values in lines if "valid_loss" in values]


def last_validation(text: str) -> dict:
    """The last validation in a training's log."""
    return (validations(text) or [{"valid_loss": "nan"}])[-1]


def table_of_updates(results: list[tuple[str, str]]) -> str:
    """Lay out one row for each number of updates at which all trainings were validated."""
    logs = {
        name: {float(values["valid_num_updates"]): values for values in validations(Path(log).read_text("utf-8"))}
        if Path(log).is_file()
        else {}
        for name, log in results
    }
    figures = ("loss", "rouge1", "rouge2", "rougeL")
    rows = [["updates", *(f"{name} {figure}" for name in logs for figure in figures)]]
    for updates in sorted(set.intersection(*map(set, logs.values()))):
        cells = (log[updates].get(f"valid_{figure}", "-") for log in logs.values() for figure in figures)
        rows.append([f"{updates:.0f}", *map(str, cells)])
    return aligned(rows)


FIGURES = ("precision", "recall", "f1")
ANSWERS = tuple(f"{answer} {figure}" for answer in ("long", "short") for figure in ("P", "R", "F1"))
KINDS = {
    "rouge": Kind("F1 × 100", ("R-1", "R-2", "R-L", "R-Lsum"), ("R-1", "R-2", "R-L"), read_rouge),
    "answers": Kind("× 100", ANSWERS, ANSWERS, read_answers),
    "bits": Kind("bits per character", ("this run",), ("",), read_bits, digits=4),
    "spans": Kind("average span", ("this run",), ("",), read_span, digits=0),
    "masked": Kind("bits per masked token", ("this run",), ("",), read_loss, digits=3, parse=last_validation),
}


def table(kind: Kind, results: list[tuple[str, str]]) -> str:
    """Lay out one row for each name, in the order in which they come."""
    ours: dict[str, list[list[float]]] = {}
    published: dict[str, list[str]] = {}
    for name, result in results:
        path = Path(result)
        if path.suffix in (".json", ".log"):
            if path.is_file():
                ours.setdefault(name, []).append(kind.read(kind.parse(path.read_text(encoding="utf-8"))))
        else:
            published[name] = result.split(",")
            if len(published[name]) != len(kind.published):
                raise ValueError(f"{name}={result}: give a file, or {len(kind.published)} published numbers")
    first, *others = kind.published
    rows = [[kind.title, *kind.columns, *([f"published {first}".strip(), *others] if published else [])]]
    for name in dict.fromkeys(name for name, _ in results):
        columns = zip(*ours[name], strict=True) if name in ours else [()] * len(kind.columns)
        row = [name, *(describe(values, f".{kind.digits}f") for values in columns)]
        rows.append(row + (published.get(name, ["-"] * len(kind.published)) if published else []))
    return aligned(rows)


def table_of_tasks(rows: list[list[str]]) -> str:
    """Lay out one row for each figure: its name, the figure, its value in some files, as published."""
    cells = [["experiment", "figure", "this run", "published"]]
    for row in rows:
        if len(row) < 4:
            raise ValueError(f"--row {' '.join(row)}: give NAME FIGURE PUBLISHED and one file or more")
        name, figure, published, *files = row
        cells.append([name, figure, _mean_and_deviation(figure, list(map(Path, files))), published])
    return aligned(cells, left=2)


def _mean_and_deviation(figure: str, files: Sequence[Path]) -> str:
    figures = []
    for path in filter(Path.is_file, files):
        scores = json.loads(path.read_text(encoding="utf-8"))
        if figure not in scores:
            raise ValueError(f"{path}: no figure {figure!r}; there are {', '.join(scores)}")
        figures.append(scores[figure])
    if not figures:
        return "-"
    mean = f"{statistics.fmean(figures):.2f}"
    return mean if len(figures) == 1 else f"{mean} ± {statistics.stdev(figures):.2f} ({len(figures)})"


def best_of(figure: str, files: Sequence[Path]) -> Path:
    """The first of the files with the highest figure; of both kinds of answers ``f1`` is the mean."""

    def value(path: Path) -> float:
        scores = json.loads(path.read_text(encoding="utf-8"))
        if "official" in scores:
            return statistics.fmean(read_answers(scores)[2::3])
        return scores[figure]

    return max(files, key=value)


def describe(values: Sequence[float], form: str) -> str:
    """``mean [least, greatest]``, or the one value, in a format such as ``.2f``."""
    if not values:
        return "-"
    mean, least, greatest = (f"{x:{form}}" for x in (statistics.mean(values), min(values), max(values)))
    return mean if least == greatest else f"{mean} [{least}, {greatest}]"


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in (*KINDS, "updates"):
        text = "a .json file, or the numbers as published"
        kinds.add_parser(name).add_argument("results", nargs="+", metavar="NAME=RESULT", help=text)
    rows = kinds.add_parser("tasks", help="scores of Longformer's tasks beside the published ones")
    rows.add_argument("--row", nargs="+", action="append", required=True, metavar="WORD")
    best = kinds.add_parser("best", help="the file with the highest figure")
    best.add_argument("figure")
    best.add_argument("files", nargs="+", type=Path, metavar="SCORES.json")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if hasattr(args, "results") and (bad := next((word for word in args.results if "=" not in word), None)):
        parser.error(f"{bad}: give NAME=FILE.json, or NAME= and the published numbers")
    try:
        if args.kind == "best":
            print(best_of(args.figure, args.files))
        elif args.kind == "tasks":
            print(table_of_tasks(args.row))
        else:
            results = [tuple(word.split("=", 1)) for word in args.results]
            print(table_of_updates(results) if args.kind == "updates" else table(KINDS[args.kind], results))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())

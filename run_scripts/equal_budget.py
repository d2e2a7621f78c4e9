"""Measures runs that are compared on equal budgets, and prints their table.

python run_scripts/equal_budget.py measure RESULT.json [--log train.log] -- COMMAND …
python run_scripts/equal_budget.py table COLUMN,COLUMN,… NAME=FILE.json NAME=FILE.json …
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from fairseq_poolingformer.text.table import aligned


def last_values(log: Path) -> dict[str, float]:
    """The last value of each number in a training's JSON log, and its ``parameters``.

    ``train_…`` and ``valid_…`` are an epoch's, ``last_…`` those of the last updates.
    """
    text, values = log.read_text(encoding="utf-8"), {}
    for line in re.findall(r'^{".*}$', text, re.M):
        for key, value in json.loads(line).items():
            values[key if key.startswith(("train_", "valid_")) else f"last_{key}"] = float(value)
    for parameters in re.findall(r"num. shared model params: ([\d,]+)", text):
        values["parameters"] = float(parameters.replace(",", ""))
    return values


def measure(result: Path, log: Path | None, command: list[str]) -> None:
    """Run a command; once it has succeeded, write its CPU seconds, its peak memory in GiB, and its logged numbers."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    values = {} if log is None else last_values(log)
    values |= {"cpu_seconds": usage.ru_utime + usage.ru_stime, "gib": usage.ru_maxrss / 2**20}
    if "train_num_updates" in values:
        values["seconds_per_update"] = values["cpu_seconds"] / values["train_num_updates"]
    result.write_text(json.dumps(values, indent=1), encoding="utf-8")


def table(columns: list[str], runs: list[str]) -> None:
    """Print a line for each name, with the mean of every column and, of several files, the range."""
    rows: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        name, file = run.split("=", 1)
        row = rows.setdefault(name, defaultdict(list))
        for key, value in json.loads(Path(file).read_text(encoding="utf-8")).items():
            row[key].append(value)
    cells = [["", *columns]]
    for name, row in rows.items():
        cells.append([name, *(describe(row[column]) for column in columns)])
    print(aligned(cells, left=len(columns) + 1))


def describe(values: list[float]) -> str:
    """``mean [least, greatest]``, or the one value, to four digits or as a whole number."""
    if not values:
        return "-"
    texts = [f"{x:,.0f}" if x >= 1e4 else f"{x:.4g}" for x in (statistics.mean(values), min(values), max(values))]
    return texts[0] if texts[1] == texts[2] else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("measure", help="run a command; keep its time, memory and logged numbers")
    one.add_argument("result", type=Path, metavar="RESULT.json")
    one.add_argument("--log", type=Path, metavar="FILE", help="the command's log in fairseq's JSON format")
    one.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    all_runs = commands.add_parser("table", help="the table of runs; files of the same name are seeds of one system")
    all_runs.add_argument("columns", metavar="COLUMN,COLUMN,…")
    all_runs.add_argument("runs", nargs="+", metavar="NAME=FILE.json")
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.result, args.log, args.command)
    else:
        table(args.columns.split(","), args.runs)


if __name__ == "__main__":
    sys.exit(main())

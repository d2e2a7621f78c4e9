"""Measures a run that is compared with others on equal budgets.

python run_scripts/equal_budget.py RESULT.json [--log train.log] -- COMMAND …
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    parser.add_argument("--log", type=Path, metavar="FILE", help="the command's log in fairseq's JSON format")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    args = parser.parse_args(arguments)
    measure(args.result, args.log, args.command)


if __name__ == "__main__":
    main()

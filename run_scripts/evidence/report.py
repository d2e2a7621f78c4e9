"""The table of run.sh: bits per token by distance, means and ranges of seeds.

    python run_scripts/evidence/report.py SYSTEM=FOLDER SYSTEM=FOLDER … --context 4096 [--output-folder OUT]

A folder is one training's; it has bits_CONTEXT.json of bits_by_distance.py and the result.json of equal_budget.py.
Folders of the same system are its seeds. Trainings that are not there are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.text.atomic_write import write_lines
from run_scripts.compare import describe


def read_classes(folder: Path, context: int) -> list[dict]:
    """Results of bits_by_distance.py in blocks of ``context`` tokens, where the split has such tokens."""
    result = json.loads((folder / f"bits_{context}.json").read_text(encoding="utf-8"))
    return [row for row in result["classes"] if row["bits_per_token"] is not None]


def cell(values: Sequence[float], sign: str = "") -> str:
    """The mean of some seeds, and their range."""
    return describe(values, f"{sign}.2f")


def table(systems: dict[str, list[Path]], context: int) -> str:
    """A row for each system, of its bits, seconds and number of seeds."""
    classes = {name: [read_classes(folder, context) for folder in seeds] for name, seeds in systems.items()}
    rows = [["", *(row["distance"] for row in next(iter(classes.values()))[0]), "CPU s", "seeds"]]
    for name, seeds in classes.items():
        seconds = [json.loads((folder / "result.json").read_text())["cpu_seconds"] for folder in systems[name]]
        cells = [cell([row["bits_per_token"] for row in rows_of]) for rows_of in zip(*seeds, strict=True)]
        rows.append([name, *cells, f"{statistics.mean(seconds):.0f}", str(len(seeds))])
    return aligned(rows)


def finished(runs: Sequence[str], context: int) -> dict[str, list[Path]]:
    """The folders of each system, of those that were evaluated in blocks of ``context`` tokens."""
    systems: dict[str, list[Path]] = {}
    for name, folder in (run.split("=", 1) for run in runs):
        if Path(folder, f"bits_{context}.json").is_file():
            systems.setdefault(name, []).append(Path(folder))
    return systems


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="SYSTEM=FOLDER")
    parser.add_argument("--context", type=int, required=True, metavar="N", help="tokens of a block")
    parser.add_argument("--output-folder", type=Path, metavar="DIR", help="write table.txt")
    args = parser.parse_args(arguments)
    done = finished(args.runs, args.context)
    if not done:
        parser.error(f"none of the folders has a bits_{args.context}.json: train first")
    text = table(done, args.context)
    print(text, flush=True)
    if args.output_folder:
        args.output_folder.mkdir(parents=True, exist_ok=True)
        write_lines(args.output_folder / "table.txt", [text])


if __name__ == "__main__":
    main()

"""Where two levels are the better buy: run.sh's systems against keys and CPU seconds, as a figure and as tables.

    python run_scripts/evidence/crossover.py RUNS [--cost cost.json] [--output-folder OUT]

RUNS is the folder of run.sh, COST what cost.py wrote. Every number is a mean over the seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from run_scripts.evidence.report import cell, finished, read_classes
from run_scripts.evidence.systems import System, read_systems

STYLES = {  # of a kind of systems: colour, line and marker, and on which side of a point its name stands
    "full attention": ("black", "^", ("right", "bottom")),
    "one window": ("tab:orange", "-o", ("right", "top")),
    "dilated heads": ("tab:red", "D", ("right", "bottom")),
    "two levels": ("tab:blue", "s", ("left", "bottom")),
    "one softmax": ("tab:green", "v", ("left", "top")),
}


class Results:
    """The bits of all systems that were evaluated in blocks of one length."""

    def __init__(self, runs: Path, systems: dict[str, System], context: int) -> None:
        folders = [f"{name}={folder}" for name in systems for folder in sorted(runs.glob(f"{name}_[0-9]*"))]
        self.context = context
        self.classes = {
            name: [read_classes(folder, context) for folder in seeds]
            for name, seeds in finished(folders, context).items()
        }
        self.systems = {name: systems[name] for name in self.classes}

    def seeds(self, name: str) -> list[float]:
        """Bits of each seed, of all names."""
        return [
            next(found["bits_per_token"] for found in classes if found["distance"] == "all")
            for classes in self.classes[name]
        ]

    def of_kind(self, kind: str) -> list[str]:
        """The names of a kind of systems, by their keys."""
        names = [name for name, system in self.systems.items() if system.kind == kind]
        return sorted(names, key=lambda name: self.systems[name].keys(self.context))

    def keys(self, name: str) -> int:
        return self.systems[name].keys(self.context)


def differences(results: Results) -> str:
    """For each system beside one window of as many keys: bits saved (-) or lost (+) by class of distance."""
    windows = {results.keys(name): name for name in results.of_kind("one window")}
    rows: list[list[str]] = []
    for name in (name for kind in ("dilated heads", "two levels", "one softmax") for name in results.of_kind(kind)):
        window = windows.get(results.keys(name))
        if window is None:
            continue
        rows = rows or [["keys", "difference", *(found["distance"] for found in results.classes[name][0])]]
        cells = []
        for found in results.classes[name][0]:
            ours, theirs = (
                [{one["distance"]: one["bits_per_token"] for one in classes}[found["distance"]] for classes in seeds]
                for seeds in (results.classes[name], results.classes[window])
            )
            cells.append(cell([a - b for a, b in zip(ours, theirs, strict=False)], "+"))
        rows.append([str(results.keys(name)), f"{name} - {window}", *cells])
    return aligned(rows, left=2) if rows else "no system has as many keys as one window"


def plot(results: Results, cost: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the bits of all names against keys, and against CPU seconds where they were measured."""
    from matplotlib.figure import Figure

    context = str(results.context)
    seconds = {name: cost[name][context] for name in results.systems if context in cost.get(name, {})}
    panels: dict[str, dict[str, float]] = {"keys of a token": {name: results.keys(name) for name in results.systems}}
    if seconds:
        panels["CPU seconds per 1,000 tokens of training"] = seconds
    figure = Figure(figsize=(5.5 * len(panels), 4.5), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for (label, places), axes in zip(panels.items(), grid, strict=True):
        axes.set(xlabel=label, title=f"Names in source code, blocks of {results.context:,} tokens")
        axes.margins(0.2, 0.1)
        for kind in STYLES:
            draw(axes, results, kind, places)
    grid[0].set_ylabel("bits per masked token, all names")
    grid[0].set_xscale("log", base=2)
    grid[0].legend(fontsize="small")
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=130)


def draw(axes: Any, results: Results, kind: str, places: dict[str, float]) -> None:
    """Draw the systems of a kind that have a place, each with its name."""
    names = [name for name in results.of_kind(kind) if name in places]
    if not names:
        return
    seeds = [results.seeds(name) for name in names]
    means = [statistics.mean(bits) for bits in seeds]
    spans = [
        [mean - min(bits) for mean, bits in zip(means, seeds, strict=True)],
        [max(bits) - mean for mean, bits in zip(means, seeds, strict=True)],
    ]
    colour, style, (ha, va) = STYLES[kind]
    axes.errorbar([places[name] for name in names], means, spans, fmt=style, color=colour, label=kind, capsize=2)
    offset = (-5 if ha == "right" else 5, -3 if va == "top" else 3)
    for name, mean in zip(names, means, strict=True):
        where = {"xytext": offset, "textcoords": "offset points", "ha": ha, "va": va}
        axes.annotate(name, (places[name], mean), fontsize="x-small", color=colour, **where)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 4096, 8192], metavar="N")
    parser.add_argument("--cost", type=Path, metavar="FILE", help="what cost.py wrote, if it is there")
    parser.add_argument("--output-folder", type=Path, metavar="DIR", help="write crossover.txt and the figures")
    args = parser.parse_args(arguments)
    cost = json.loads(args.cost.read_text(encoding="utf-8")) if args.cost and args.cost.is_file() else {}
    texts = []
    for context in args.contexts:
        results = Results(args.runs, read_systems(), context)
        if not results.systems:
            parser.error(f"{args.runs} has no bits_{context}.json: train first")
        texts.append(f"blocks of {context:,} tokens\n{differences(results)}")
        if args.output_folder and find_spec("matplotlib"):
            args.output_folder.mkdir(parents=True, exist_ok=True)
            plot(results, cost, args.output_folder / f"crossover_{context}.png")
    print("\n\n".join(texts), flush=True)
    if args.output_folder:
        write_lines(args.output_folder / "crossover.txt", ["\n\n".join(texts)])


if __name__ == "__main__":
    main()

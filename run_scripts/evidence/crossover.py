"""Where two levels are the better buy: run.sh's systems against keys and CPU seconds, as a figure and as tables.

    python run_scripts/evidence/crossover.py RUNS [--cost cost.json] [--output-folder OUT]

RUNS is the folder of run.sh, COST what cost.py wrote. Far names are those whose nearest other occurrence lies farther
than one window of as many keys reaches. Every number is a mean over the seeds.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from run_scripts.evidence.report import cell, finished, read_classes
from run_scripts.evidence.systems import System, read_systems

STYLES = {
    "full attention": ("black", "--^"),
    "one window": ("tab:orange", "-o"),
    "dilated heads": ("tab:red", "D"),
    "two levels": ("tab:blue", "s"),
    "one softmax": ("tab:green", "v"),
}


def beyond(classes: Sequence[dict], distance: int) -> float:
    """Bits per token of the names farther than a distance, which must be a limit of the classes; 0: of all names."""
    if not distance:
        return next(found["bits_per_token"] for found in classes if found["distance"] == "all")
    first = {found["distance"]: re.match(r"(?:> )?(\d+)", found["distance"]) for found in classes}
    starts = {
        name: int(match.group(1)) + name.startswith(">") for name, match in first.items() if match
    }  # the nearest distance of a class
    far = [found for found in classes if starts.get(found["distance"], 0) > distance]
    if distance + 1 not in starts.values():
        raise ValueError(f"no class of distances begins after {distance}; there are {', '.join(first)}")
    tokens = sum(found["tokens"] for found in far)
    return sum(found["tokens"] * found["bits_per_token"] for found in far) / tokens


class Results:
    """The bits of all systems that were evaluated in blocks of one length."""

    def __init__(self, runs: Path, systems: dict[str, System], context: int) -> None:
        folders = [f"{name}={folder}" for name in systems for folder in sorted(runs.glob(f"{name}_[0-9]*"))]
        self.context = context
        self.classes = {
            name: [read_classes(folder, context) for folder in seeds.values()]
            for name, seeds in finished(folders, context).items()
        }
        self.systems = {name: systems[name] for name in self.classes}

    def seeds(self, name: str, distance: int) -> list[float]:
        """Bits of each seed, of names farther than a distance."""
        return [beyond(classes, distance) for classes in self.classes[name]]

    def bits(self, name: str, distance: int) -> float:
        """The mean over the seeds."""
        return statistics.mean(self.seeds(name, distance))

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
    """Draw bits of far names and of all names against keys, and against CPU seconds where they were measured."""
    from matplotlib.figure import Figure

    context = str(results.context)
    seconds = {name: cost[name][context] for name in results.systems if context in cost.get(name, {})}
    columns: dict[str, dict[str, float] | None] = {"keys": None}
    if seconds:
        columns[f"CPU seconds per 1,000 tokens of training, blocks of {context}"] = seconds
    figure = Figure(figsize=(11, 4 * len(columns)), layout="constrained")
    grid = figure.subplots(len(columns), 2, squeeze=False, sharey="col")
    for (label, places), row in zip(columns.items(), grid, strict=True):
        for far, what, axes in zip((True, False), ("names beyond the window", "all names"), row, strict=True):
            axes.set(xlabel=label, ylabel=f"bits per token of {what}")
            if places is None:
                axes.set_xscale("log", base=2)
            for kind in STYLES:
                draw(axes, results, kind, places, far)
    grid[0][0].legend(fontsize="small")
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=130)


def draw(axes: Any, results: Results, kind: str, seconds: dict[str, float] | None, far: bool) -> None:
    """Draw the systems of a kind, against keys where there are no seconds.

    With ``far``, of the names that a window of as many keys does not reach. Which these are depends on the keys: full
    attention has a point for each of the windows.
    """
    drawn = {name for name in results.systems if seconds is None or name in seconds}
    full = far and kind == "full attention"
    points = []  # place, the seeds' bits, label
    for name in filter(drawn.__contains__, results.of_kind(kind)):
        for beside in filter(drawn.__contains__, results.of_kind("one window")) if full else [name]:
            bits = results.seeds(name, results.keys(beside) // 2 if far else 0)
            label = str(results.keys(beside)) if kind in ("full attention", "one window") else name
            points.append((results.keys(beside) if seconds is None else seconds[name], bits, label))
    means = [statistics.mean(seeds) for _, seeds, _ in points]
    low = [mean - min(seeds) for mean, (_, seeds, _) in zip(means, points, strict=True)]
    high = [max(seeds) - mean for mean, (_, seeds, _) in zip(means, points, strict=True)]
    if not points:
        return
    colour, style = STYLES[kind]
    axes.errorbar([x for x, _, _ in points], means, [low, high], fmt=style, color=colour, label=kind, capsize=2)
    for (x, _, label), mean in zip(points, means, strict=True):
        axes.annotate(label, (x, mean), xytext=(4, 4), textcoords="offset points", fontsize="x-small")


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

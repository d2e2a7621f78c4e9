"""The table of run.sh: bits per token by distance, means and ranges of seeds, beside a baseline; and a plot.

    python run_scripts/evidence/report.py SYSTEM=FOLDER SYSTEM=FOLDER … --context 4096 [--baseline window_32] \
        [--output-folder OUT]

A folder is one training's; it has bits_CONTEXT.json of bits_by_distance.py and the result.json of equal_budget.py.
Folders of the same system are its seeds, in the same order for all systems. Trainings that are not there are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from run_scripts.compare import describe
from run_scripts.plot_loss import read_log

Bits = dict[str, float]


def read_classes(folder: Path, context: int, what: str = "classes") -> list[dict]:
    """Results of bits_by_distance.py in blocks of ``context`` tokens, where the split has such tokens."""
    result = json.loads((folder / f"bits_{context}.json").read_text(encoding="utf-8"))
    return [found for found in result[what] if found["bits_per_token"] is not None]


def read_bits(folder: Path, context: int, what: str = "classes") -> Bits:
    """Bits per token of each class, or of each power of two (``octaves``)."""
    return {found["distance"]: found["bits_per_token"] for found in read_classes(folder, context, what)}


def cell(values: Sequence[float], sign: str = "") -> str:
    """The mean of some seeds, and their range."""
    return describe(values, f"{sign}.2f")


def table(systems: dict[str, dict[int, Path]], context: int, baseline: str) -> str:
    """A row for each system, of its bits, and where the baseline has the seed too, a row of the differences from it."""
    bits = {
        name: {seed: read_bits(folder, context) for seed, folder in seeds.items()} for name, seeds in systems.items()
    }
    classes = list(next(iter(next(iter(bits.values())).values())))
    rows = [["", *classes, "CPU s", "seeds"]]
    for name, seeds in bits.items():
        seconds = [json.loads((folder / "result.json").read_text())["cpu_seconds"] for folder in systems[name].values()]
        cells = [cell([found[key] for found in seeds.values()]) for key in classes]
        rows.append([name, *cells, f"{statistics.mean(seconds):.0f}", str(len(seeds))])
    base = bits.get(baseline, {})
    for name, seeds in bits.items():
        common = [seed for seed in seeds if seed in base]
        if name != baseline and common:
            cells = [cell([seeds[seed][key] - base[seed][key] for seed in common], "+") for key in classes]
            rows.append([f"{name} - {baseline}", *cells, "", str(len(common))])
    return aligned(rows)


def plot(systems: dict[str, dict[int, Path]], context: int, path: Path) -> None:
    """Draw bits by powers of two of the distance, and the loss in training; means of the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    by_distance, by_update = figure.subplots(1, 2)
    for name, seeds in systems.items():
        octaves = mean_curve([octave_curve(folder, context) for folder in seeds.values()])
        losses = mean_curve([read_log(folder / "train.log")["training"] for folder in seeds.values()])
        by_distance.plot(list(octaves), list(octaves.values()), marker="o", label=name)
        by_update.plot(list(losses), list(losses.values()), label=name)
    by_distance.set(xlabel="distance to the nearest occurrence, tokens", ylabel="bits per masked token")
    by_distance.set_xscale("log", base=2)
    by_distance.legend(fontsize="small")
    by_update.set(xlabel="update", ylabel="training loss, bits per token")
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=130)


def octave_curve(folder: Path, context: int) -> dict[float, float]:
    """Bits per token by the upper limit of each power of two."""
    limits = {
        key.removeprefix("<= ").split("-")[-1]: bits for key, bits in read_bits(folder, context, "octaves").items()
    }
    return {float(limit): bits for limit, bits in limits.items() if limit.isdecimal()}


def mean_curve(curves: Sequence[dict[float, float]]) -> dict[float, float]:
    """The mean of some curves at each place where any of them has a value."""
    places = sorted({place for curve in curves for place in curve})
    return {place: statistics.mean(curve[place] for curve in curves if place in curve) for place in places}


def finished(runs: Sequence[str], context: int) -> dict[str, dict[int, Path]]:
    """The folders of each system by seed, of those that were evaluated in blocks of ``context`` tokens."""
    systems: dict[str, dict[int, Path]] = {}
    for run in runs:
        name, folder = run.split("=", 1)
        seeds = systems.setdefault(name, {})
        seeds[len(seeds)] = Path(folder)
    done = {
        name: {seed: folder for seed, folder in seeds.items() if (folder / f"bits_{context}.json").is_file()}
        for name, seeds in systems.items()
    }
    return {name: seeds for name, seeds in done.items() if seeds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="SYSTEM=FOLDER")
    parser.add_argument("--context", type=int, required=True, metavar="N", help="tokens of a block")
    parser.add_argument("--baseline", default="window_32", help="default: %(default)s")
    parser.add_argument(
        "--output-folder", type=Path, metavar="DIR", help="write table.txt and, with matplotlib, plot.png"
    )
    args = parser.parse_args(arguments)
    done = finished(args.runs, args.context)
    if not done:
        parser.error(f"none of the folders has a bits_{args.context}.json: train first")
    text = table(done, args.context, args.baseline)
    print(text, flush=True)
    if args.output_folder:
        args.output_folder.mkdir(parents=True, exist_ok=True)
        write_lines(args.output_folder / "table.txt", [text])
        if find_spec("matplotlib"):
            plot(done, args.context, args.output_folder / "plot.png")


if __name__ == "__main__":
    main()

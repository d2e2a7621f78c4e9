"""Time and memory against length as two pictures, from what growth.py --output has written.

    python benchmarks/plot.py growth.json PREFIX          # PREFIX_time.svg and PREFIX_memory.svg

Transparent, with colours that show on white and on black.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

INK = "#80868b"
COLORS = {
    "full attention": "#d1495b",
    "LED of Hugging Face": "#c98a1b",
    "level one": "#3d9a57",
    "Poolingformer": "#2f86c9",
}
LINE_GAP = 13  # points between neighbouring labels
Curve = list[tuple[int, float]]


def read_curves(contents: dict[str, Any], key: str, scale: float) -> dict[str, Curve]:
    """(length, value · scale) of each system, without what failed."""
    curves: dict[str, Curve] = {}
    for row in contents["rows"]:
        if row.get(key, 0) > 0:
            curves.setdefault(row["system"], []).append((row["length"], row[key] * scale))
    if not curves:
        raise ValueError(f"no row has {key!r}; is this what growth.py --output wrote?")
    return {system: sorted(curve) for system, curve in curves.items()}


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights moved apart until neighbours are ``gap`` from one another, in the order given."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    return placed


def label_lines(axes: Axes, curves: dict[str, Curve], failures: dict[str, str]) -> None:
    """Each system's name at the right of its line, and why it ends; a dotted line leads to those that end early."""
    point = axes.figure.dpi / 72
    longest = max(curve[-1][0] for curve in curves.values())
    right = axes.transData.transform((longest, 1.0))[0] + 8 * point
    heights = [axes.transData.transform(curve[-1])[1] for curve in curves.values()]
    for (system, curve), height in zip(curves.items(), spread(heights, LINE_GAP * point), strict=True):
        color = COLORS.get(system, INK)
        x, y = axes.transData.inverted().transform((right, height))
        reason = f": {failures[system].split(' at ')[0]}" if system in failures else ""
        axes.annotate(system + reason, (x, y), va="center", color=color, fontsize=10)
        if curve[-1][0] < longest:
            axes.plot(*zip(curve[-1], (x, y), strict=True), color=color, linewidth=1, linestyle=":")


def draw(contents: dict[str, Any], key: str, scale: float, ylabel: str) -> Figure:
    """A log-log picture of one number of the rows."""
    curves = read_curves(contents, key, scale)
    failures = {row["system"]: row["failure"] for row in contents["rows"] if "failure" in row}
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, whatever matplotlib is set to
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=ylabel)
    for system, curve in curves.items():
        axes.plot(*zip(*curve, strict=True), color=COLORS.get(system, INK), marker="o", markersize=4, linewidth=1.8)
    lengths = sorted({length for curve in curves.values() for length, _ in curve})
    axes.set_xticks(lengths, [f"{length // 1024}k" if length % 1024 == 0 else str(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(right=lengths[-1] * (lengths[-1] / lengths[0]) ** 0.55)  # room for the labels
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(INK)
    axes.tick_params(colors=INK, which="both")
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.grid(color=INK, alpha=0.25, linewidth=0.6)
    figure.canvas.draw()  # so that the places of the lines are known
    label_lines(axes, curves, failures)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file of growth.py")
    parser.add_argument("prefix", help="what the names of the pictures begin with")
    args = parser.parse_args(arguments)
    try:
        contents = json.loads(args.results.read_text(encoding="utf-8"))
        clock = "CPU seconds" if contents["device"] == "cpu" else "seconds"
        time = draw(contents, "seconds", 1.0, f"{clock}, forward + backward")
        memory = draw(contents, "bytes", 2.0**-20, "peak memory of the layer (MiB)")
    except (OSError, ValueError, KeyError) as error:
        print(f"plot: {args.results}: {error!r}", file=sys.stderr)
        return 1
    for name, figure in (("time", time), ("memory", memory)):
        path = Path(f"{args.prefix}_{name}.svg")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None})
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

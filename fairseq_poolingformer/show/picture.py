"""A :class:`~.looks.Look` as one picture: a panel for each kind of attention, sentences down, the document across."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.show.looks import CROSS, TITLES, Look, Passages

COLUMNS = 60  # characters of a sentence beside its row
LABELLED = 40  # rows at most that have a label
MAPS = {CROSS: "Purples", "one": "GnBu", "two": "YlOrBr"}


def draw(look: Look, path: Path) -> None:
    with needing("plot"):
        from matplotlib.figure import Figure
    rows = {kind: look.summary if kind == CROSS else look.document for kind in look.views}
    heights = [min(max(len(rows[kind]) * 0.24, 1.6), 4.6) for kind in look.views]
    figure = Figure(figsize=(9, sum(heights) + 1.1 * len(heights) + 0.4), layout="constrained")
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    figure.suptitle(look.title, fontsize=11)
    # where the passages begin, and where the last one ends: (passages + 1,)
    edges = np.array([*(start for start, _ in look.document.spans), look.document.spans[-1][1]], dtype=float)
    for panel, (kind, view) in zip(panels, look.views.items(), strict=True):
        weights = view.weights.mean(0)[:, :-1]
        # a long and a short sentence of one share differ in colour: it is the share of each character that is drawn
        density = np.ma.masked_equal(np.sqrt(weights / np.diff(edges)), 0.0)
        places = np.arange(len(weights) + 1) if kind == CROSS else edges
        mesh = panel.pcolormesh(edges, places, density, cmap=MAPS[kind], rasterized=True, vmin=0)
        mesh.set_edgecolor("face")
        panel.invert_yaxis()
        panel.set_title(
            f"{TITLES[kind]}: {'the summary' if kind == CROSS else 'each sentence'}, mean of all layers", fontsize=9
        )
        panel.set_xlabel("characters of the document", fontsize=8)
        panel.tick_params(labelsize=7)
        if kind == CROSS and len(weights) <= LABELLED:
            panel.set_yticks(np.arange(len(weights)) + 0.5, _labels(look.summary))
        elif kind == CROSS:
            panel.set_ylabel("sentences of the summary", fontsize=8)
        else:
            panel.set_ylabel("characters of the document", fontsize=8)
    figure.savefig(path, dpi=150)


def _labels(summary: Passages) -> list[str]:
    # a dollar sign would begin a formula
    return [
        textwrap.shorten(summary[row], COLUMNS, placeholder=" …").replace("$", r"\$") for row in range(len(summary))
    ]

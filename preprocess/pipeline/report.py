"""The table of a corpus (thesis, table 3.1): how many examples, how long they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairseq_poolingformer.text.sequences import read_sizes

if TYPE_CHECKING:
    from preprocess.pipeline.run import Corpus


def table(
    folder: Path, corpus: Corpus, max_source_lengths: tuple[int, ...], rejects: dict[str, int] | None = None
) -> str:
    """Examples of each split, and median and 90th percentile of the lengths of each text, in tokens.

    Lengths are those of the text alone. In training ``<s>`` and ``</s>`` come on top, so an input is truncated at a
    maximum length of n where its text has more than n − 2 tokens.

    Args:
        folder: the data folder.
        corpus: names its splits and texts.
        max_source_lengths: maximum lengths, in tokens, to count truncated inputs for.
        rejects: number of rejected records of each split, where known.

    Returns:
        Lines of text, columns aligned.
    """
    sizes = {
        split: [read_sizes(folder / (f"{split}.{name}" if name else split)) - 1 for name in corpus.layout.ids]
        for split in corpus.splits
    }
    if len(sizes) > 1:
        sizes["all"] = [np.concatenate(columns) for columns in zip(*sizes.values(), strict=True)]
    names = {"source": "input", "target": "output", "": "text"}
    head = [corpus.name, "examples"]
    for name in corpus.layout.ids:
        head += [f"{names[name.rpartition('.')[2]]} median", "90th"]
    head += [f"input > {length}" for length in max_source_lengths]
    rows = [head]
    for split, lengths in sizes.items():
        row = [split, f"{len(lengths[0])}"]
        for side in lengths:
            row += [f"{value:.0f}" for value in np.percentile(side, [50, 90])]
        for maximum in max_source_lengths:
            truncated = np.count_nonzero(lengths[0] + 2 > maximum)
            row.append(f"{truncated} ({100 * truncated / len(lengths[0]):.1f} %)")
        rows.append(row)
    if rejects is not None:
        counts = [str(rejects[split]) if split in rejects else str(sum(rejects.values())) for split in sizes]
        rows = [[*row, cell] for row, cell in zip(rows, ["rejected", *counts], strict=True)]
    return aligned(rows)


def aligned(rows: list[list[str]]) -> str:
    """Rows of cells as lines of text, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )

"""The table of a corpus (thesis, table 3.1): how many examples it has, and how long they are."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.sequences import read_sizes
from fairseq_poolingformer.text.table import aligned

_HEADS = {"source": "input", "target": "output", "": "text"}


def length_table(
    folder: DataFolder,
    name: str,
    splits: Sequence[str],
    max_source_lengths: Sequence[int],
    rejects: Mapping[str, int] | None = None,
) -> str:
    """Count the examples of each split; give the median and the 90th percentile of each text's length in tokens.

    Lengths are those of the text alone. Training adds ``<s>`` and ``</s>``, so a maximum length of n truncates a text
    of more than n − 2 tokens.

    Args:
        folder: the data folder.
        name: the corpus's name.
        splits: its splits.
        max_source_lengths: maximum lengths, in tokens, to count truncated inputs for.
        rejects: number of rejected records of each split, where known.

    Returns:
        Lines of text, columns aligned.
    """
    sizes = {split: [read_sizes(folder.array(split, array)) - 1 for array in folder.layout.ids] for split in splits}
    if len(sizes) > 1:
        sizes["all"] = [np.concatenate(columns) for columns in zip(*sizes.values(), strict=True)]
    head = [name, "examples"]
    for array in folder.layout.ids:
        head += [f"{_HEADS[array.rpartition('.')[2]]} median", "90th"]
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

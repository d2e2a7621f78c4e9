"""The table of a corpus, by hand."""

import numpy as np

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.sequences import SequencesWriter
from preprocess.pipeline.report import length_table


def test_a_table_by_hand(tmp_path):
    """Texts of n tokens are stored with </s> and truncated at n + 1 tokens, since training adds <s> and </s>."""
    folder = DataFolder(tmp_path, PAIRS)
    lengths = {"train": ([10, 20, 30], [1, 2, 3]), "valid": ([8], [5])}
    for split, sides in lengths.items():
        for array, sizes in zip(PAIRS.ids, sides, strict=True):
            with SequencesWriter(folder.array_path(split, array), np.uint16) as writer:
                for size in sizes:
                    writer.append(np.full(size + 1, 7))
    table = length_table(folder, "toy", ["train", "valid"], (21, 22), {"train": 4, "valid": 0})
    rows = [line.split("  ") for line in table.split("\n")]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["toy", "examples", "input median", "90th", "output median", "90th", "input > 21", "input > 22", "rejected"],
        ["train", "3", "20", "28", "2", "3", "2 (66.7 %)", "1 (33.3 %)", "4"],
        ["valid", "1", "8", "8", "5", "5", "0 (0.0 %)", "0 (0.0 %)", "0"],
        ["all", "4", "15", "27", "2", "4", "2 (50.0 %)", "1 (25.0 %)", "4"],
    ]
    alone = length_table(folder, "toy", ["train"], (21,)).split("\n")
    assert [line.split()[0] for line in alone] == ["toy", "train"]

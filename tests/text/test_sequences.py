"""Memory-mapped sequences, written and read."""

import itertools

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_poolingformer.text.sequences import SequencesWriter, read_sizes


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.uint32])
def test_files_are_those_of_fairseqs_builder(tmp_path, dtype):
    sequences = [[5, 6, 7, 2], [9], [2], [65499, 0, 2], [], list(range(300)), [8, 8]]
    take = np.array([True, False, True, True, True, True, False])
    builder = indexed_dataset.MMapIndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=dtype)
    for sequence in itertools.compress(sequences, take):
        builder.add_item(torch.tensor(sequence))
    builder.finalize(str(tmp_path / "theirs.idx"))
    part = tmp_path / "part.array"
    part.write_bytes(np.concatenate([np.array(sequence) for sequence in sequences]).astype(dtype).tobytes())
    with SequencesWriter(tmp_path / "ours", np.dtype(dtype)) as writer:
        writer.append_file(part, np.array([len(sequence) for sequence in sequences]), take)
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"ours.{suffix}").read_bytes() == (tmp_path / f"theirs.{suffix}").read_bytes()
    assert read_sizes(tmp_path / "ours").tolist() == [4, 1, 3, 0, 300]


def test_a_part_that_is_too_short_is_named(tmp_path):
    (tmp_path / "part.array").write_bytes(b"123")
    with (
        pytest.raises(ValueError, match=r"part\.array: 1 bytes shorter"),
        SequencesWriter(tmp_path / "ours", np.dtype(np.uint16)) as writer,
    ):
        writer.append_file(tmp_path / "part.array", np.array([2]), np.ones(1, bool))
    assert not list(tmp_path.glob("ours*.bin"))

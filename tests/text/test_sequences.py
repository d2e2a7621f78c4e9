import itertools
import struct

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_poolingformer import register
from fairseq_poolingformer.text.sequences import MAGIC, Sequences, SequencesWriter, read_sizes


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


def index_of(sizes, pointers=None, count=None, code=8, version=1):
    ends = np.cumsum(sizes)
    pointers = (ends - sizes) * 2 if pointers is None else pointers
    head = MAGIC + struct.pack("<QBQ", version, code, len(sizes) if count is None else count)
    return head + np.array(sizes, np.int32).tobytes() + np.array(pointers, np.int64).tobytes()


CRAFTED = {
    "more sequences than bytes": index_of([2, 2], count=2**40),
    "one sequence fewer": index_of([2, 2], count=1),
    "a negative size": index_of([6, -2]),
    "sizes beyond the file": index_of([2, 2**31 - 1]),
    "a negative pointer": index_of([2, 2], [0, -4]),
    "a pointer beyond the file": index_of([2, 2], [0, 2**40]),
    "pointers to one place": index_of([2, 2], [0, 0]),
    "no such type": index_of([2, 2], code=7),
    "another type": index_of([2, 2], code=5),
    "another version": index_of([2, 2], version=2),
    "cut in the head": index_of([2, 2])[:20],
    "cut in the pointers": index_of([2, 2])[:-1],
    "text": b"no index\n" * 9,
    "empty": b"",
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_index_is_a_sentence_for_every_reader(name, tmp_path):
    register()
    prefix = tmp_path / "train"
    (tmp_path / "train.bin").write_bytes(bytes(8))
    (tmp_path / "train.idx").write_bytes(CRAFTED[name])
    with pytest.raises(ValueError, match=r"train\.(idx|bin): .*preprocess again"):
        Sequences(prefix)
    with pytest.raises(ValueError, match=r"train\.(idx|bin): .*preprocess again"):
        indexed_dataset.make_dataset(str(prefix), "mmap")

"""Memory-mapped sequences, written and read."""

import itertools
import os
import random
import struct

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_poolingformer import register
from fairseq_poolingformer.text import digests
from fairseq_poolingformer.text.sequences import MAGIC, Sequences, SequencesWriter, blocks_path, read_sizes


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


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """6 MB in sequences of all lengths."""
    prefix = tmp_path_factory.mktemp("large") / "train"
    rng = np.random.default_rng(0)
    with SequencesWriter(prefix, np.dtype(np.uint16)) as writer:
        for _ in range(600):
            writer.append(rng.integers(0, 2**16, rng.integers(0, 10_000), np.uint16))
    return prefix


def test_every_flip_in_a_large_file_is_noticed_where_it_is_read_and_not_before(large):
    path, rng = large.with_suffix(".bin"), random.Random(0)
    good = path.read_bytes()
    for _ in range(25):
        place = rng.randrange(len(good))
        data = bytearray(good)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        sequences = Sequences(large)
        block = place // digests.BLOCK_BYTES
        for number in range(len(sequences)):
            first, end = sequences.bounds[number : number + 2] * 2
            if first // digests.BLOCK_BYTES <= block < -(-end // digests.BLOCK_BYTES):
                with pytest.raises(ValueError, match=r"train\.bin: not the file that .*bytes from .* on have changed"):
                    sequences[number]
            else:
                sequences[number]
        with pytest.raises(ValueError, match="have changed"):
            sequences.values  # noqa: B018
    path.write_bytes(good)
    assert np.array_equal(Sequences(large).values, np.frombuffer(good, np.uint16))


def test_a_block_is_compared_once_also_by_forked_processes(large, monkeypatch):
    sequences = Sequences(large)
    if not (child := os.fork()):
        sequences.values  # noqa: B018
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    monkeypatch.setattr(digests.hashlib, "sha256", None)
    assert len(sequences.values) == sequences.num_values


def test_digests_of_another_file_are_refused(large, tmp_path):
    for suffix in (".bin", ".idx"):
        (tmp_path / f"train{suffix}").write_bytes(large.with_suffix(suffix).read_bytes())
    assert len(Sequences(tmp_path / "train")) == 600  # an older folder: without digests
    blocks_path(tmp_path / "train").write_bytes(blocks_path(large).read_bytes()[:-32])
    with pytest.raises(ValueError, match=r"train\.blocks: not the digests of train\.bin"):
        Sequences(tmp_path / "train")


def test_a_small_file_leaves_no_digests_of_a_larger_one(tmp_path):
    for count, has_digests in ((2**20, True), (2**10, False)):
        with SequencesWriter(tmp_path / "train", np.dtype(np.uint16)) as writer:
            writer.append(np.zeros(count, np.uint16))
        assert blocks_path(tmp_path / "train").exists() == has_digests
        assert Sequences(tmp_path / "train").num_values == count

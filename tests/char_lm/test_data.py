"""Rows of one text: every symbol predicted once an epoch, in order; the memory between two batches."""

import math
import pickle

import numpy as np
import pytest
import torch

from fairseq_poolingformer.char_lm.data import CarriedMemory, TextBlocks, TextStream
from fairseq_poolingformer.text.byte_symbols import bytes_to_ids
from fairseq_poolingformer.text.dictionary import EOS, PAD
from preprocess.char_lm import make_folder

SIZE = 101


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "text").write_bytes(bytes(range(SIZE)) + b"ab")
    make_folder([str(folder / "text")], folder, sizes=(SIZE, 1, 1))
    return TextStream(folder / "train")


def batches(blocks, workers, worker):
    indices = blocks.batches(workers)[worker::workers]
    return [blocks.collater([blocks[index] for index in batch]) for batch in indices]


@pytest.mark.parametrize("rotation_seed", [None, 7])
@pytest.mark.parametrize(("workers", "rows"), [(1, 1), (1, 4), (2, 3), (3, 1), (1, 101), (2, 50)])
@pytest.mark.parametrize("length", [1, 7, 25, 200])
def test_every_symbol_is_predicted_once_after_the_one_before_it(text, workers, rows, length, rotation_seed):
    blocks = TextBlocks(text, num_rows=workers * rows, tokens_per_sample=length, rotation_seed=rotation_seed)
    blocks.set_epoch(3)
    predicted, numbers = [], set()
    for worker in range(workers):
        read = batches(blocks, workers, worker)
        numbers.add(len(read))
        assert [batch["position"] for batch in read] == [length * number for number in range(blocks.num_blocks)]
        assert [batch["continues"] for batch in read] == [False] + [True] * (len(read) - 1)
        assert [batch["goes_on"] for batch in read] == [True] * (len(read) - 1) + [False]
        for row in range(rows):
            inputs = np.concatenate([batch["net_input"]["src_tokens"][row].numpy() for batch in read])
            targets = np.concatenate([batch["target"][row].numpy() for batch in read])
            real = targets != PAD
            assert (inputs[~real] == PAD).all()
            assert not real[np.argmin(real) :].any() or real.all(), "padding is at the end only"
            inputs, targets = inputs[real] - 4, targets[real] - 4
            before = np.where(targets == 0, EOS - 4, targets - 1)  # symbol k is the k-th of the text
            assert (inputs == before).all()
            assert (np.diff(targets) % SIZE == 1).all(), "the row is contiguous"
            predicted += targets.tolist()
        assert sum(batch["ntokens"] for batch in read) == sum((batch["target"] != PAD).sum() for batch in read)
    assert sorted(predicted) == list(range(SIZE))
    assert len(numbers) == 1, "workers have equally many batches"
    assert (predicted[0] != 0) == (rotation_seed is not None)


def test_epochs_begin_elsewhere_when_asked_to(text):
    def first_target(epoch, seed):
        blocks = TextBlocks(text, num_rows=1, tokens_per_sample=4, rotation_seed=seed)
        blocks.set_epoch(epoch)
        return int(blocks[0]["targets"][0])

    assert len({first_target(epoch, 1) for epoch in range(1, 9)}) > 4
    assert first_target(5, 1) == first_target(5, 1)
    assert {first_target(epoch, None) for epoch in range(1, 9)} == {4}


def test_a_worker_process_gets_the_path_and_not_the_text(text):
    blocks = TextBlocks(text, num_rows=2, tokens_per_sample=5)
    copy = pickle.loads(pickle.dumps(blocks))
    assert (copy[3]["targets"] == blocks[3]["targets"]).all()
    assert len(pickle.dumps(text)) < 500


def test_mistakes_are_explained(text, tmp_path):
    with pytest.raises(ValueError, match="give a smaller --batch-size"):
        TextBlocks(text, num_rows=SIZE + 1, tokens_per_sample=5)
    folder = text.sequences.prefix.parent
    for suffix in (".idx", ".bin"):
        (tmp_path / f"train{suffix}").write_bytes((folder / f"train{suffix}").read_bytes())
    ids = bytes_to_ids(bytes(SIZE)) + np.uint16(400)
    (tmp_path / "train.bin").write_bytes(ids.tobytes())
    with pytest.raises(ValueError, match="not a text of bytes"):
        TextStream(tmp_path / "train").read(0, 5)
    (tmp_path / "train.bin").write_bytes(ids.tobytes()[:-1])
    with pytest.raises(ValueError, match="where its index says"):
        TextStream(tmp_path / "train")


def sample(position, rows=1, *, continues=True, goes_on=True):
    tokens = {"src_tokens": torch.zeros(rows, 3)}
    return {"position": position, "continues": continues, "goes_on": goes_on, "net_input": tokens}


def test_a_memory_is_handed_out_where_it_fits_alone(caplog):
    memory = CarriedMemory()
    memory.keep(sample(0, rows=2, continues=False), [torch.ones(2, 5, 4)])
    assert torch.equal(memory.before(sample(3, rows=2))[0], torch.ones(2, 5, 4))
    assert not caplog.messages
    assert memory.before(sample(6, rows=2)) is None
    assert memory.before(sample(3, rows=1)) is None
    assert len(caplog.messages) == 2
    assert "no saved memory fits byte 6 (another position or batch size): starting with an empty one" in caplog.text
    assert memory.before(sample(3, rows=2, continues=False)) is None
    assert len(caplog.messages) == 2, "an empty memory at the beginning is no surprise"


def test_nothing_is_kept_after_the_last_block():
    memory = CarriedMemory()
    memory.keep(sample(0, goes_on=False), [torch.ones(1, 5, 4)])
    assert memory.state_dict()["tensors"] is None
    memory.keep(sample(0), [torch.ones(1, 5, 4)])
    memory.keep(sample(3), None)
    assert memory.before(sample(6)) is None


def test_float16_infinities_do_not_stay():
    memory = CarriedMemory()
    memory.keep(sample(0, continues=False), [torch.tensor([[[1.0, math.inf, math.nan]]], dtype=torch.float16)])
    assert memory.before(sample(3))[0].tolist() == [[[1, 0, 0]]]

"""The memory between two batches."""

import math

import torch

from fairseq_poolingformer.char_lm.data import CarriedMemory


def test_float16_infinities_do_not_stay():
    memory = CarriedMemory()
    sample = {"position": 0, "continues": False, "goes_on": True, "net_input": {"src_tokens": torch.zeros(1, 3)}}
    memory.keep(sample, [torch.tensor([[[1.0, math.inf, math.nan]]], dtype=torch.float16)])
    after = memory.before(sample | {"position": 3, "continues": True})
    assert after[0].tolist() == [[[1, 0, 0]]]


def sample(position, rows=1, *, continues=True, goes_on=True):
    """A batch of blocks of three symbols."""
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
    assert memory.before(sample(3, rows=2, continues=False)) is None
    assert len(caplog.messages) == 2, "an empty memory at the beginning is no surprise"


def test_nothing_is_kept_after_the_last_block():
    memory = CarriedMemory()
    memory.keep(sample(0, goes_on=False), [torch.ones(1, 5, 4)])
    assert memory.state_dict()["tensors"] is None
    memory.keep(sample(0), [torch.ones(1, 5, 4)])
    memory.keep(sample(3), None)
    assert memory.before(sample(6)) is None

"""The memory between two batches."""

import math

import torch

from fairseq_poolingformer.modules.carried_memory import CarriedMemory


def test_float16_infinities_do_not_stay():
    memory = CarriedMemory()
    sample = {"position": 0, "continues": False, "goes_on": True, "net_input": {"src_tokens": torch.zeros(1, 3)}}
    memory.keep(sample, [torch.tensor([[[1.0, math.inf, math.nan]]], dtype=torch.float16)])
    after = memory.before(sample | {"position": 3, "continues": True})
    assert after[0].tolist() == [[[1, 0, 0]]]

"""Computations that fairseq does wrongly, or only on a GPU, or not beside one."""

import math
import random
from types import SimpleNamespace

import pytest
import torch
from fairseq import utils
from fairseq.models.ema import EMA
from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import nn

from fairseq_poolingformer.patches import computation

PAD = 1


def banned_by_hand(tokens, size):
    have = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    prefix = tuple(tokens[len(tokens) - size + 1 :])
    return {ngram[-1] for ngram in have if ngram[:-1] == prefix} - {tokens[0]}


def block(tokens, size, step, words=9):
    blocker = NGramRepeatBlock(size, use_extension=False)
    return blocker(tokens, torch.zeros(tokens.size(0), words), tokens.size(0), 1, step)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bans_what_would_repeat_whatever_the_buffer_holds_beyond(size):
    rng, banned = random.Random(0), 0
    for step in range(0, 30, 3):
        tokens = torch.full((4, 40), PAD)
        rows = [[2, *(rng.randint(3, 5) for _ in range(step))] for _ in range(4)]
        tokens[:, : step + 1] = torch.tensor(rows)
        lprobs = block(tokens, size, step)
        for row, hypothesis in enumerate(rows):
            expected = banned_by_hand(hypothesis, size) if len(hypothesis) >= size else set()
            assert set((lprobs[row] == -math.inf).nonzero().flatten().tolist()) == expected
            banned += len(expected)
    assert banned


CONFIG = {"ema_decay": 0.75, "ema_seed_model": None, "ema_update_freq": 1, "ema_start_update": 0}


def counting_model(weight, count):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    model.register_buffer("count", torch.tensor(count))
    return model


@pytest.mark.parametrize("fp32", [False, True])
def test_integers_are_taken_over(fp32):
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=fp32))
    average.step(counting_model(8.0, 5), updates=1)
    assert average.get_model().weight.item() == 0.75 * 4 + 0.25 * 8
    assert (average.get_model().count.item(), average.get_model().count.dtype) == (5, torch.int64)


def test_gradients_are_clipped_where_they_are():
    """The device that has no memory stands for the one beside the GPU on which fairseq computes the norm."""
    weight = nn.Parameter(torch.empty(2, device="meta"))
    weight.grad = torch.empty(2, device="meta")

    def norm_elsewhere(params, max_norm, aggregate):
        return params, max_norm, aggregate(torch.tensor(3.0))

    params, max_norm, norm = computation.clip_where_the_gradients_are(
        norm_elsewhere, weight, 0.5, lambda norm: norm + 1
    )
    assert (params, max_norm, norm.device.type) == ([weight], 0.5, "meta")


@pytest.mark.parametrize("aggregate", [None, lambda norm: 2 * norm])
def test_clipping_is_fairseqs(aggregate):
    results = []
    for clip in (utils.clip_grad_norm_, utils.clip_grad_norm_.__wrapped__):
        weights = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
        weights[0].grad, weights[2].grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
        results.append((clip(iter(weights), 1.0, aggregate), weights[0].grad, weights[2].grad))
    assert all(map(torch.equal, *results))
    assert utils.clip_grad_norm_([], 1.0) == 0.0

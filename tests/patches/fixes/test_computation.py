"""Repeated n-grams, averages, and half precision on a CPU."""

import math
import random
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.ema import EMA
from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import nn

from tests.patches.helpers import unpatched

PAD = 1


def banned_by_hand(tokens, size):
    """Every token that would complete an n-gram which the hypothesis has already."""
    have = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    prefix = tuple(tokens[len(tokens) - size + 1 :])
    return {ngram[-1] for ngram in have if ngram[:-1] == prefix} - {tokens[0]}


def block(tokens, size, step, words=9):
    blocker = NGramRepeatBlock(size, use_extension=False)
    return blocker(tokens, torch.zeros(tokens.size(0), words), tokens.size(0), 1, step)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bans_what_would_repeat_whatever_the_buffer_holds_beyond(size):
    rng = random.Random(0)
    banned = 0
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


def test_fairseqs_own_fallback_bans_nothing_in_a_search():
    tokens = torch.tensor([[2, 4, 5, 4, 5, 4, PAD, PAD, PAD, PAD]])  # 4 5 4 is followed by 5 again
    assert (block(tokens, 3, step=5)[0] == -math.inf).nonzero().flatten().tolist() == [5]
    original = NGramRepeatBlock._no_repeat_ngram.replaced
    lprobs = original(NGramRepeatBlock(3, use_extension=False), tokens, torch.zeros(1, 9), 1, 1, 5)
    assert (lprobs == 0).all()


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
    assert average.get_model().count.item() == 5
    assert average.get_model().count.dtype == torch.int64


def test_names_to_skip_are_kept():
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=False), skip_keys=["weight"])
    average.step(counting_model(8.0, 5), updates=1)
    assert (average.get_model().weight.item(), average.get_model().count.item()) == (8, 5)


def test_integers_are_refused_unpatched(monkeypatch):
    unpatched(monkeypatch, EMA, "__init__")
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=False))
    with pytest.raises(RuntimeError, match="can't be cast"):
        average.step(counting_model(8.0, 5), updates=1)

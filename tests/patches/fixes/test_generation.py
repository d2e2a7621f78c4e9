"""--no-repeat-ngram-size."""

import math
import random

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

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
    original = NGramRepeatBlock._no_repeat_ngram.__wrapped__
    lprobs = original(NGramRepeatBlock(3, use_extension=False), tokens, torch.zeros(1, 9), 1, 1, 5)
    assert (lprobs == 0).all()

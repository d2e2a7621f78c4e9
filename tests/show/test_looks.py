"""Weights of tokens, summed up to passages, beside one token at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.show.looks import Passages, characters, mean_rows, seen_passages

TEXT = "  One of them, by J. Smith. Two\tare here!\n\nA title\nThree: é😀 x. "


def test_white_space_belongs_to_the_sentence_before_it():
    passages = Passages.sentences(TEXT)
    numbers = passages.of_characters(np.arange(len(TEXT)))
    assert numbers[0] == 0
    for number, (start, end) in enumerate(passages.spans):
        assert (numbers[start:end] == number).all()
    assert numbers[TEXT.index("A title") - 1] == 1


@given(st.text(alphabet="aB.! \n\téß😀", max_size=40))
def test_every_word_is_in_one_sentence(text):
    passages = Passages.sentences(text)
    covered = np.zeros(len(text), dtype=int)
    for start, end in passages.spans:
        covered[start:end] += 1
    assert all(count == 1 for char, count in zip(text, covered, strict=True) if not char.isspace())
    assert covered.max(initial=0) <= 1


def test_bytes_become_characters():
    starts = np.array([len(TEXT[:number].encode()) for number in range(len(TEXT) + 1)])
    assert characters(TEXT, starts).tolist() == list(range(len(TEXT) + 1))


LENGTH = 23


@pytest.mark.parametrize("dilation", [1, (1, 3)])
@pytest.mark.parametrize("global_tokens", [0, 2])
@pytest.mark.parametrize("separate", [False, True])
def test_passages_are_the_means_and_sums_of_their_tokens(dilation, global_tokens, separate):
    torch.manual_seed(0)
    windows = {"window": Window(3, dilation=dilation), "pooled_window": Window(7), "pooling": Pooling(5, 4)}
    layer = TwoLevelAttention(8, 2, **windows, separate_global_projections=separate).eval()
    mask = torch.zeros(1, LENGTH, dtype=torch.bool)
    mask[0, :global_tokens] = True
    with torch.no_grad():
        levels = layer.weights(3 * torch.randn(1, LENGTH, 8), global_mask=mask if global_tokens else None)
    passage = torch.tensor([4, *[0] * 5, *[1] * 9, *[3] * 7, 4])  # passage 2 has no tokens
    for level in levels:
        expected = torch.zeros(5, 5)
        for token in range(LENGTH):
            for head in range(2):
                on_tokens = level.over_tokens(level.of_query(token)[0, head])
                for other in range(LENGTH):
                    share = on_tokens[other] / 2 / (passage == passage[token]).sum()
                    expected[passage[token], passage[other]] += share
        seen = seen_passages(level, passage, 5)
        torch.testing.assert_close(seen, expected)
        torch.testing.assert_close(seen.sum(1), torch.tensor([1.0, 1, 0, 1, 1]))


def test_means_of_groups():
    rows = torch.arange(8.0).view(4, 2).numpy()
    assert mean_rows(rows, torch.tensor([0, 2, 2, 0]).numpy(), 3).tolist() == [[3, 4], [0, 0], [3, 4]]
    assert mean_rows(rows, torch.tensor([0, 2, 1, 3]).numpy(), 4)[[0, 2, 1, 3]].tolist() == rows.tolist()

"""The spans of a segment beside all pairs of tokens, one by one."""

from __future__ import annotations

import pytest
import torch

from fairseq_poolingformer.huggingface.spans import best_spans


def every_span(start, end, allowed, longest):
    """(probability, first, last) of each span, best first, and the probability that there is none."""
    start, end = (torch.where(torch.tensor(allowed), x.double(), -1e4).softmax(0).tolist() for x in (start, end))
    inside = [token for token, is_allowed in enumerate(allowed) if is_allowed and token]
    pairs = [(first, last) for first in inside for last in inside if first <= last < first + longest]
    return sorted(((start[i] * end[j], i, j) for i, j in pairs), reverse=True), start[0] * end[0]


@pytest.mark.parametrize("seed", range(20))
def test_all_pairs_are_considered(seed):
    generator = torch.Generator().manual_seed(seed)
    number, longest = int(torch.randint(2, 40, (), generator=generator)), 1 + seed % 9
    start, end = (3 * torch.randn(number, generator=generator) for _ in range(2))
    allowed = [True, *(torch.rand(number - 1, generator=generator) < 0.7).tolist()]
    expected, expected_none = every_span(start, end, allowed, longest)
    found, none = best_spans(start, end, allowed, count=7, longest=longest)
    assert [span[:2] for span in found] == [span[1:] for span in expected[:7]]
    assert [score for *_, score in found] == pytest.approx([score for score, *_ in expected[:7]], rel=1e-5)
    assert none == pytest.approx(expected_none, rel=1e-5)


def test_a_segment_without_context_has_no_answer():
    found, none = best_spans(torch.zeros(5), torch.zeros(5), [True, False, False, False, False], count=3, longest=2)
    assert (found, none) == ([], 1.0)

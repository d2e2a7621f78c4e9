"""Bands against the sets of the papers, enumerated one by one."""

import itertools

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, Window, visible_pairs
from fairseq_poolingformer.attention.patterns import Band
from tests.attention.naive import sees, sees_pool


@pytest.mark.parametrize(("left", "right", "dilation"), [(0, 0, 1), (2, 2, 1), (3, 0, 1), (1, 4, 2), (2, 1, 3)])
@pytest.mark.parametrize("offset", [-3, 0, 5])
def test_token_window_is_the_papers_neighbour_set(left, right, dilation, offset):
    visible = visible_pairs(Window(left, right, dilation), None, 1, offset, 7, 11)[0]
    for t, s in itertools.product(range(7), range(11)):
        assert visible[t, s] == sees(offset + t, s, left=left, right=right, dilation=dilation)


@pytest.mark.parametrize(("kernel_size", "stride"), [(1, 1), (5, 4), (4, 4), (2, 5), (3, 1), (7, 2)])
@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (6, 6), (9, 2), (1, 1)])
def test_pooled_window_is_the_designs_set_of_pools(kernel_size, stride, alignment, left, right):
    pooling, tokens = Pooling(kernel_size, stride, alignment), 23
    pools = pooling.num_pools(tokens)
    visible = visible_pairs(Window(left, right), pooling, 1, 0, tokens, pools)[0]
    for i, j in itertools.product(range(tokens), range(pools)):
        expected = sees_pool(i, j, left=left, right=right, kernel_size=kernel_size, stride=stride, alignment=alignment)
        assert visible[i, j] == expected, (i, j)


def test_heads_have_their_own_dilation():
    visible = visible_pairs(Window(1, 1, (1, 3)), None, 2, 0, 8, 8)
    assert [row.nonzero().flatten().tolist() for row in visible[:, 4]] == [[3, 4, 5], [1, 4, 7]]


@pytest.mark.parametrize("key_stride", [1, 3, 4])
def test_key_range_and_covers_agree_with_visible(key_stride):
    for lowest, highest in [(-5, 5), (-9, 0), (2, 6), (3, 1)]:
        band = Band(lowest, highest, key_stride=key_stride)
        visible = band.visible(torch.arange(20), torch.arange(9))
        for begin in range(0, 20, 3):
            rows = visible[begin : begin + 4]
            end = begin + rows.size(0)
            start, stop = (min(key, 9) for key in band.key_range(begin, end - 1))
            columns = rows.any(0).nonzero().flatten().tolist()
            assert (start, stop) == (columns[0], columns[-1] + 1) if columns else not rows[:, start:stop].any()
            if start < stop:
                assert band.covers(range(begin, end), range(start, stop)) == rows[:, start:stop].all().item()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Window(-1), "left"),
        (lambda: Window(1.5), "left"),
        (lambda: Window(1, dilation=0), "dilation"),
        (lambda: Pooling(0, 1), "kernel_size"),
        (lambda: Pooling(1, 1, "centre"), "alignment"),
        (lambda: Window(1, 1, (1, 2)).head_dilations(3), "2 values for 3 heads"),
    ],
)
def test_bad_arguments_are_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()

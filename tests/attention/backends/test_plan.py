"""A call as its backends read it: residue classes beside the pairs that the window shows, masks, and gradients."""

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, Window
from fairseq_poolingformer.attention.backends.plan import TermGradients, residue_classes, tensors_of
from fairseq_poolingformer.attention.patterns import visible_pairs

HEADS, QUERIES, KEYS = 4, 13, 21


@pytest.mark.parametrize(
    ("window", "pooling"),
    [
        (Window(3), None),
        (Window.unlimited(), None),
        (Window(2, 1, 3), None),
        (Window(3, 0, (1, 1, 4, 2)), None),
        (Window(0, 5, 40), None),  # more residues than queries
        (Window(7), Pooling(3, 2)),
        (Window(7, 2), Pooling(4, 3, "query")),
        (Window(6, 9), Pooling(3, 5, "query")),
    ],
)
@pytest.mark.parametrize("offset", [0, 5, -4])
def test_residue_classes_have_every_pair_that_the_window_shows_once(window, pooling, offset):
    counts = torch.zeros(HEADS, QUERIES, KEYS, dtype=torch.long)
    queries = torch.zeros(HEADS, QUERIES, dtype=torch.long)
    for residues in residue_classes(window, pooling, HEADS, offset, QUERIES):
        positions, keys = torch.arange(QUERIES)[residues.queries], torch.arange(KEYS)[residues.keys]
        of_class = torch.ones(len(positions), len(keys), dtype=torch.bool)
        if residues.band is not None:
            assert residues.band.step == 1
            of_class = residues.band.visible(torch.arange(len(positions)), torch.arange(len(keys)))
        queries[residues.heads, residues.queries] += 1
        for head in range(HEADS)[residues.heads]:
            counts[head, positions[:, None], keys] += of_class
    assert (queries == 1).all()
    assert torch.equal(counts, visible_pairs(window, pooling, HEADS, offset, QUERIES, KEYS).long())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_gradients_of_terms_are_summed_in_32_bits_and_given_in_their_dtype(dtype):
    terms = tuple(RelativePositionBias(torch.zeros(2, 5, dtype=dtype)) for _ in range(3))
    gradients = TermGradients(terms, tensors_of(terms), (True, False, True))
    wide = torch.promote_types(dtype, torch.float32)
    for number, (term, places) in enumerate(gradients.terms):
        assert places == ({} if number == 1 else {"table": number})
        assert term.table is gradients.leaves[number]
        assert term.table.requires_grad == (number != 1)
        for place in places.values():
            for _ in range(300):
                gradients.sums[place] += torch.ones(2, 5, dtype=wide) * (number + 1)
    results = gradients.results()
    assert results[1] is None
    for total, result in ((300, results[0]), (900, results[2])):  # bfloat16 alone stops at 256
        assert result.dtype == dtype
        assert (result == total).all()

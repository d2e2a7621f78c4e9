"""Documents in pieces."""

import itertools

import numpy as np
import pytest

from fairseq_poolingformer.downstream.examples import count_pieces, cut


@pytest.mark.parametrize(("room", "overlap"), [(5, 0), (5, 2), (1, 0), (7, 6)])
def test_pieces_cover_a_document(room, overlap):
    for size in range(40):
        pieces = cut(size, room, overlap=overlap)
        assert len(pieces) == count_pieces(np.array([size]), room, overlap=overlap)[0]
        assert pieces[0][0] == 0
        assert pieces[-1][1] == size
        assert all(end - first <= room for first, end in pieces)
        for before, after in itertools.pairwise(pieces):
            assert before[1] - after[0] == overlap
            assert before[1] < size  # the last piece is the first that reaches the end
        assert cut(size, room, 2, overlap) == pieces[:2]
        assert count_pieces(np.array([size]), room, 2, overlap)[0] == min(2, len(pieces))


def test_pieces_without_room_are_refused():
    with pytest.raises(ValueError, match="room must be more than overlap"):
        cut(3, 2, overlap=2)

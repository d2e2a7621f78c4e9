"""Distances to the nearest repetition: by hand, and beside a twin that compares all pairs."""

import numpy as np
import pytest

from fairseq_poolingformer.text.repetitions import NONE, nearest_repetitions

TEXTS = [b"", b" the", b"the", b" cat", b"s", b"\n", b" ", b"\xc3", b" (", b" cat.", b"cat"]


def nearest(tokens, words, hidden=(), texts=TEXTS):
    visible = np.ones(len(tokens), dtype=bool)
    visible[list(hidden)] = False
    return nearest_repetitions(np.array(tokens), np.array(words), visible, texts).tolist()


def test_by_hand():
    #        <s>  the  cat  cat·s  the  \n  cat  </s>
    tokens = [0, 2, 3, 3, 4, 1, 5, 3, 0]
    words = [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert nearest(tokens, words) == [NONE, 4, 5, NONE, NONE, 4, NONE, 5, NONE]
    # a hidden word still has a distance, to those that can be seen; nobody has one to it
    assert nearest(tokens, words, hidden=[1]) == [NONE, 4, 5, NONE, NONE, NONE, NONE, 5, NONE]
    assert nearest(tokens, words, hidden=[1, 5]) == [NONE, NONE, 5, NONE, NONE, NONE, NONE, 5, NONE]
    assert nearest([3, 4, 3, 4], [0, 0, 1, 1], hidden=[3]) == [NONE, NONE, 2, 2]
    assert nearest([], []) == []
    assert nearest([8, 10, 1, 9], [0, 0, 1, 2]) == [3, 3, NONE, 3]  # "(cat", the, cat.
    assert nearest([8, 8], [0, 1]) == [NONE, NONE]


@pytest.mark.parametrize("seed", range(20))
def test_as_all_pairs(seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, len(TEXTS), 60)
    words = np.cumsum(rng.random(60) < 0.7)
    words -= words[0]
    visible = rng.random(60) < 0.7
    expected = []
    for own in words:
        name = b"".join(TEXTS[token] for token in tokens[words == own]).strip(b" \n().")
        place = np.flatnonzero(words == own)[0]
        distances = [
            abs(int(np.flatnonzero(words == other)[0]) - int(place))
            for other in set(words.tolist())
            if other != own
            and visible[words == other].all()
            and b"".join(TEXTS[token] for token in tokens[words == other]).strip(b" \n().") == name != b""
        ]
        expected.append(min(distances, default=NONE))
    assert nearest_repetitions(tokens, words, visible, TEXTS).tolist() == expected

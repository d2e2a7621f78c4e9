"""Distances to the nearest repetition: by hand, and beside a twin that compares all pairs."""

import numpy as np
import pytest

from fairseq_poolingformer.text.repetitions import NONE, RepeatedNames, nearest_repetitions

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


def test_names_are_drawn_by_hand():
    #        <s>  cat·s  the  cat·s  the  cat·cat  </s>  cat·s
    tokens = np.array([0, 3, 4, 1, 3, 4, 1, 3, 10, 0, 3, 4])
    words = np.array([0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7])

    def drawn(nearest, farthest, count=9):
        names = RepeatedNames(TEXTS, nearest, farthest)
        return {tuple(names.draw(tokens, words, count, np.random.default_rng(seed)).tolist()) for seed in range(40)}

    # "cats" is at 1, 4 and 10; "the" has a symbol of its own, and "catcat" comes once
    assert drawn(1, 20) == {(1,), (3,), (7,)}
    assert drawn(4, 20) == {(7,)}  # the nearest one counts: 3 tokens from 4 to 1, 6 from 10 to 4
    assert drawn(1, 3) == {(1,), (3,)}
    assert drawn(7, 20) == {()}
    assert drawn(1, 20, count=0) == {()}


def test_no_name_is_drawn_twice():
    rng = np.random.default_rng(0)
    tokens, words = rng.choice([3, 4, 9, 10], 200), np.repeat(np.arange(100), 2)
    names = RepeatedNames(TEXTS, 1, 200)
    for count in (3, 200):
        chosen = names.draw(tokens, words, count, rng)
        texts = [b"".join(TEXTS[token] for token in tokens[words == word]).strip(b" .") for word in chosen]
        assert len(set(texts)) == len(texts) > 2
        assert len(texts) <= count


def test_distances_of_names_ascend():
    for distances in ((0, 5), (6, 5)):
        with pytest.raises(ValueError, match="distances must ascend from 1"):
            RepeatedNames(TEXTS, *distances)

import itertools

import numpy as np
import pytest

from fairseq_poolingformer.text.document_blocks import cut_into_blocks, documents_of_lines


def bounds(*lengths):
    """Bounds of documents with so many tokens each, ``</s>`` not counted."""
    return np.cumsum([0, *(length + 1 for length in lengths)])


def ranges(blocks):
    return list(zip(blocks.first_token.tolist(), blocks.end_token.tolist(), strict=True))


def test_blocks_by_hand():
    """Room for 8 tokens; a last block of fewer than 3 (5 with its marks) is evened."""
    blocks = cut_into_blocks(bounds(5, 8, 0, 10, 11, 17, 1), max_tokens=10, min_tokens=5)
    assert ranges(blocks) == [
        *[(0, 5)],  # </s> is at 5
        *[(6, 14)],  # token 14 is its </s>, token 15 that of the empty document
        *[(16, 21), (21, 26)],  # 10 = 8 + 2 -> 5 + 5
        *[(27, 35), (35, 38)],  # 11 = 8 + 3
        *[(39, 47), (47, 52), (52, 56)],  # 17 = 8 + 8 + 1 -> 8 + 5 + 4
        *[(57, 58)],
    ]
    assert blocks.sizes.tolist() == [7, 10, 7, 7, 10, 5, 10, 7, 6, 3]
    assert (blocks.num_cut, blocks.num_empty, blocks.num_evened, len(blocks)) == (3, 1, 2, 10)


def test_packed_blocks_by_hand():
    for lengths, least, expected in (
        ((5, 8, 0, 3), 0, [(0, 8), (8, 16), (16, 19)]),  # the last </s>, at 19, is the block's own
        ((5, 8, 0, 3), 5, [(0, 8), (8, 16), (16, 19)]),
        ((9,), 5, [(0, 5), (5, 9)]),
    ):
        blocks = cut_into_blocks(bounds(*lengths), max_tokens=10, min_tokens=least, pack=True)
        assert ranges(blocks) == expected
        assert (blocks.num_cut, blocks.num_empty, blocks.num_evened) == (0, int(0 in lengths), int(lengths == (9,)))


def test_documents_of_lines_by_hand():
    """Three documents, of two lines, one and one, with empty lines before, between and behind them."""
    at, num_last = documents_of_lines(bounds(0, 3, 2, 0, 0, 5, 0, 4, 0))
    assert (at.tolist(), num_last.tolist()) == ([1, 10, 17, 23], [3, 2, 2])
    assert ranges(cut_into_blocks(at, max_tokens=99, num_last=num_last)) == [(1, 7), (10, 15), (17, 21)]
    assert ranges(cut_into_blocks(at, max_tokens=99, num_last=num_last, pack=True)) == [(1, 21)]
    at, num_last = documents_of_lines(bounds(2, 3))
    assert ranges(cut_into_blocks(at, max_tokens=99, num_last=num_last)) == [(0, 6)]
    for empty in (bounds(0, 0), np.zeros(1, np.int64)):
        at, num_last = documents_of_lines(empty)
        assert len(cut_into_blocks(at, max_tokens=99, num_last=num_last, pack=True)) == 0


def test_defaults_no_documents_and_numbers_that_cannot_be():
    for last, evened in ((5, 1), (6, 0)):  # 7 and 8 of 64 tokens, with <s> and </s>: an eighth at least
        assert cut_into_blocks(bounds(62 + last), max_tokens=64).num_evened == evened
    for empty, pack in itertools.product((np.zeros(1, np.int64), bounds(0)), (False, True)):
        assert len(cut_into_blocks(empty, max_tokens=10, min_tokens=5, pack=pack)) == 0
    for numbers, message in (
        ((2, 0), "max_tokens must be at least 3"),
        ((10, 6), "min_tokens must be between 0 and half of max_tokens 10, got 6"),
    ):
        with pytest.raises(ValueError, match=message):
            cut_into_blocks(bounds(5), max_tokens=numbers[0], min_tokens=numbers[1])


def naive_blocks(lengths, room, min_tokens):
    """Tokens of each block, document by document."""
    documents = []
    for length in lengths:
        sizes = [room] * (length // room) + [length % room] * (length % room > 0)
        if len(sizes) > 1 and sizes[-1] + 2 < min_tokens:
            both = sizes.pop() + sizes.pop()
            sizes += [both - both // 2, both // 2]
        documents.append(sizes)
    return documents


@pytest.mark.parametrize("pack", [False, True])
def test_blocks_equal_a_loop_and_hold_every_token_once(pack):
    rng = np.random.default_rng(0)
    for trial in range(60):
        lengths = rng.integers(0, rng.integers(1, 90), rng.integers(1, 30)).tolist()
        max_tokens = int(rng.integers(3, 40))
        min_tokens = int(rng.integers(0, max_tokens // 2 + 1))
        at = bounds(*lengths)
        blocks = cut_into_blocks(at, max_tokens=max_tokens, min_tokens=min_tokens, pack=pack)
        expected = naive_blocks([int(at[-1]) - 1] if pack else lengths, max_tokens - 2, min_tokens)
        assert blocks.sizes.tolist() == [2 + size for sizes in expected for size in sizes], trial
        tokens = [token for first, end in ranges(blocks) for token in range(first, end)]
        ends = {int(end) - 1 for end in at[1:]}
        everything = range(int(at[-1]) - 1) if pack else [t for t in range(int(at[-1])) if t not in ends]
        assert tokens == list(everything)

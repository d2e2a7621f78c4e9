"""How much a file may build: each bound holds to the last value, and what is counted adds up."""

import math

import pytest

from fairseq_poolingformer.checkpoint_reader import bounds


def test_values_and_bytes_add_up_to_their_bounds():
    budget = bounds.Budget()
    budget.spend(bounds.MOST_VALUES - 1)
    budget.spend_bytes(bounds.MOST_BYTES)
    budget.spend(1)
    with pytest.raises(bounds.Refused, match="more than 2,097,152 values"):
        budget.spend(1)
    with pytest.raises(bounds.Refused, match="more than 67,108,864 bytes beside its tensors"):
        budget.spend_bytes(1)


def test_numbers_as_keys_are_counted_over_all_dictionaries_and_texts_are_not():
    budget = bounds.Budget()
    budget.check_keys(str(number) for number in range(2 * bounds.MOST_NUMBER_KEYS))
    for _ in range(2):
        budget.check_keys(range(bounds.MOST_NUMBER_KEYS // 2))
    with pytest.raises(bounds.Refused, match="more than 32,768 numbers as keys"):
        budget.check_keys([1.5])


@pytest.mark.parametrize("key", [0, -(2**63), 2**63 - 1, 1.5, math.nan, True, None, "text"])
def test_keys_that_are_taken(key):
    bounds.Budget().check_keys([key])


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, b"bytes", (1, 2), frozenset(), 1j, type("Own", (str,), {})("x")])
def test_keys_that_are_refused_by_their_type(key):
    with pytest.raises(bounds.Refused, match=f"has a {type(key).__name__} as a key"):
        bounds.Budget().check_keys(["good", key])


def test_texts_of_a_file_do_not_steer_a_terminal():
    assert bounds.shown("é 注意力") == "é 注意力"
    assert bounds.shown("x" * 500) == "x" * 100
    assert bounds.shown("\x1b[2Jgone") == r"'\x1b[2Jgone'"


def test_archives_may_grow_sixteen_times_and_small_ones_more():
    size = 3 * 2**20
    assert bounds.growth(size, 16 * size) is None
    assert bounds.growth(size, 16 * size + 1) == "its 3,145,728 bytes would become 50,331,649, so it was not read"
    assert bounds.growth(10, 16 * 2**20) is None
    assert bounds.growth(10, 16 * 2**20 + 1) is not None

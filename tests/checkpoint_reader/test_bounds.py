"""How much a file may build."""

import pytest

from fairseq_poolingformer.checkpoint_reader import bounds
from fairseq_poolingformer.checkpoint_reader.bounds import Budget, growth, shown
from fairseq_poolingformer.checkpoint_reader.errors import Refused


def test_a_budget_is_spent_to_its_end():
    budget = Budget()
    budget.spend(bounds.MOST_VALUES)
    budget.spend_bytes(bounds.MOST_BYTES)
    with pytest.raises(Refused, match="more than 2,097,152 values"):
        budget.spend(1)
    with pytest.raises(Refused, match="more than 67,108,864 bytes"):
        budget.spend_bytes(1)


@pytest.mark.parametrize("key", [b"bytes", (1, 2), 2**63, frozenset()])
def test_keys_are_text_or_numbers(key):
    with pytest.raises(Refused, match="as a key, which is not text or a number"):
        Budget().check_keys([key])


def test_numbers_as_keys_are_counted_and_texts_are_not():
    budget = Budget()
    budget.check_keys(map(str, range(2 * bounds.MOST_NUMBER_KEYS)))
    budget.check_keys(range(bounds.MOST_NUMBER_KEYS))
    with pytest.raises(Refused, match="numbers as keys"):
        budget.check_keys([None])


def test_growth_counts_from_a_mebibyte():
    assert growth(1, 16 * 2**20) is None
    assert growth(2**21, 32 * 2**20) is None
    assert "its 2,097,152 bytes would become 33,554,433" in growth(2**21, 32 * 2**20 + 1)


def test_texts_of_a_file_do_not_steer_a_terminal():
    assert shown("\x1b[2J") == r"'\x1b[2J'"
    assert shown("w" * 200) == "w" * 100

"""Tables of text."""

from fairseq_poolingformer.text.table import aligned


def test_columns_are_aligned():
    rows = [["name", "count", "share"], ["a long name", "7", "12.5 %"], ["b", "1,234", ""]]
    assert aligned(rows).split("\n") == [
        "name         count   share",
        "a long name      7  12.5 %",
        "b            1,234",
    ]
    assert aligned(rows[:2], left=2).split("\n")[1] == "a long name  7      12.5 %"

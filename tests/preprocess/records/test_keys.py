import pytest

from preprocess.records import keys

A = {"who": "A", "what": "x"}


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        ({"turns": [A, {"who": "B", "what": ""}]}, "turns.*.who:what", ["A: x", "B: "]),
        ({"turns": {"one": {**A, "deep": [{"who": "B", "what": "y"}]}}}, "turns.*.who:what", ["A: x"]),
        ({"turns": [{"who": "A"}, {"what": "y"}]}, "turns.*.who:what", None),
        ({"turns": [{"who:what": "z", **A}]}, "turns.*.who:what", ["z"]),
        ({"turns": [{"who": 1, "what": "x"}]}, "turns.*.who:what", [{"who": 1, "what": "x"}]),  # a reject names it
        ({"who:what": "z"}, "who:what", "z"),
    ],
)
def test_who_says_what(fields, key, expected):
    assert keys.under(fields, key) == expected

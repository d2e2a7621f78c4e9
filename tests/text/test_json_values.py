import math

import pytest

from fairseq_poolingformer.text import json_values

VALUES = [None, True, 0, -3, 1.5, math.inf, "x", "", "12", " 1e3 ", "yes", [], [1], {}, {"a": 1}]


def taken(read, key="key"):
    """Values that a reader returns, with what it returns; all others must be refused by name."""
    accepted, messages = [], {}
    for value in VALUES:
        try:
            accepted.append((value, read({key: value})))
        except ValueError as error:
            messages[repr(value)] = str(error)
    for value, message in messages.items():
        assert message.startswith(f"'{key}' must be ")
        assert message.endswith(f", is {value}")
    with pytest.raises(ValueError, match=rf"^'{key}' must be .*, is missing$"):
        read({"other": 1})
    return accepted


def same(*values):
    return [(value, value) for value in values]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (json_values.list_of, same([], [1])),
        (json_values.text_of, same("x", "", "12", " 1e3 ", "yes")),
        (json_values.integer_of, same(0, -3)),  # true is no integer
        (json_values.number_of, [*same(0, -3, 1.5, math.inf), ("12", 12.0), (" 1e3 ", 1000.0)]),
    ],
)
def test_values_that_are_taken(read, expected):
    assert taken(lambda record: read(record, "key")) == expected


def test_values_under_keys_of_their_own():
    assert taken(json_values.example_id_of, "example_id") == same(0, -3, "x", "", "12", " 1e3 ", "yes")
    assert taken(json_values.yes_no_of, "yes_no_answer") == [("yes", "YES")]
    assert [json_values.yes_no_of({"yes_no_answer": value}) for value in ("No", "none")] == ["NO", "NONE"]


def test_defaults_are_for_keys_that_are_missing():
    assert json_values.integer_of({}, "key", 7) == 7
    assert json_values.yes_no_of({}, "NONE") == "NONE"
    for read in (
        lambda record: json_values.integer_of(record, "key", 7),
        lambda record: json_values.yes_no_of(record, "NONE"),
    ):
        with pytest.raises(ValueError, match="is None"):
            read({"key": None, "yes_no_answer": None})


def test_an_object_is_named_by_its_place_and_long_values_are_cut():
    assert json_values.as_object({"a": 1}, "the line") == {"a": 1}
    assert json_values.read_object('{"a": "é"}\n'.encode()) == {"a": "é"}
    assert json_values.read_object(b"\xef\xbb\xbf{}") == {}
    with pytest.raises(ValueError, match=r"^the line must be a JSON object, is \[1\]$"):
        json_values.as_object([1], "the line")
    with pytest.raises(ValueError, match=r"^'key' must be a list, is 'x{56}\.\.\.$"):
        json_values.list_of({"key": "x" * 100}, "key")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": "\xff"}', "not UTF-8: byte 7 of the line, "),
        (b'{"a": 1', "broken JSON: Expecting ',' delimiter: character 8 of the line"),
        (b"", "broken JSON: "),
        (b"[" * 100_000, "broken JSON: nested too deeply"),
        (b"1" * 5000, "broken JSON: "),
        (b"[]", "wrong type: the line is a list, not an object"),
        (b"null", "wrong type: the line is null, not an object"),
    ],
)
def test_other_lines_say_why_not(line, message):
    with pytest.raises(json_values.BadLine) as raised:
        json_values.read_object(line)
    assert str(raised.value).startswith(message)

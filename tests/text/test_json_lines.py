"""Lines of JSON: the objects that they hold, and words for lines that hold something else."""

import pytest

from fairseq_poolingformer.text.json_lines import BadLine, read_object, type_name


def test_an_object_is_read_with_or_without_a_byte_order_mark():
    assert read_object('{"a": "é"}\n'.encode()) == {"a": "é"}
    assert read_object(b"\xef\xbb\xbf{}") == {}


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
    with pytest.raises(BadLine) as raised:
        read_object(line)
    assert str(raised.value).startswith(message)


def test_types_have_jsons_names():
    values = [{}, [], "", True, None, 1, 1.5]
    names = ["an object", "a list", "a string", "true or false", "null", "a number", "a number"]
    assert [type_name(value) for value in values] == names

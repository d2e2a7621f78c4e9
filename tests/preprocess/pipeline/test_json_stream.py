"""Elements of JSON arrays and texts of the outermost object, found without parsing, also in long and damaged files."""

import bz2
import gzip
import io
import itertools
import json
import random

import pytest

from preprocess.pipeline import json_stream
from preprocess.pipeline.json_stream import read_elements, text_members


def random_value(rng, depth=3):
    kind = rng.randrange(6 if depth else 3)
    text = "".join(rng.choice('ab ,"\\[]{}:\n é長') for _ in range(rng.randrange(12)))
    if kind < 3:
        return (text, rng.randrange(100), None)[kind]
    if kind < 5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text + str(n): random_value(rng, depth - 1) for n in range(rng.randrange(4))}


@pytest.mark.parametrize("block", [1, 7, 2**20])
@pytest.mark.parametrize("indent", [None, 1])
def test_the_elements_are_those_of_the_json_module(tmp_path, monkeypatch, block, indent):
    """Whatever is in their strings, however the file is laid out, wherever a block ends."""
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    rng, path = random.Random(block), tmp_path / "values.json"
    for count, key in itertools.product((0, 1, 30), (None, "Data")):
        values = [random_value(rng) for _ in range(count)]
        inside = {"Version": [1, {"Data": [2]}], "Data": values, "Domain": ["Data", []]}
        text = json.dumps(inside if key else values, indent=indent, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")
        records = list(read_elements([path], key))
        assert [json.loads(record.data) for record in records] == values
        lines = text.split("\n")
        for number, record in enumerate(records, 1):
            assert record.file == f"{path}, element {number}"
            assert record.data.decode().split("\n")[0] in lines[record.line - 1]
        assert sum(record.progress for record in records) <= path.stat().st_size


@pytest.mark.parametrize("block", [1, 7, 2**20])
@pytest.mark.parametrize("between", ["", "\n", " \r\n\t", "\ufeff"])
@pytest.mark.parametrize("compress", [None, gzip.compress, bz2.compress])
def test_all_values_of_a_file_are_read(tmp_path, monkeypatch, block, between, compress):
    """As ``cat a.json b.json`` and ``cat a.json.gz b.json.gz`` write them."""
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    for key, wholes in ((None, [[1, "]"], [], [[2], 3]]), ("Data", [{"Data": [1], "x": [{}]}, {"Data": ["}", 3]}])):
        texts = [(json.dumps(whole) + between).encode() for whole in wholes]
        path = tmp_path / {None: "a", gzip.compress: "a.gz", bz2.compress: "a.bz2"}[compress]
        path.write_bytes(b"".join(map(compress, texts)) if compress else b"".join(texts))
        records = list(read_elements([path], key))
        expected = [value for whole in wholes for value in (whole if key is None else whole[key])]
        assert [json.loads(record.data) for record in records] == expected
        assert [record.file for record in records] == [f"{path}, element {n + 1}" for n in range(len(expected))]


@pytest.mark.parametrize("block", [1, 7, 2**20])
@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[1]\n[2]\nxyz", None, "line 3: neither the end .* it has 2"),
        ("[1]]", None, "line 1: neither"),
        ('[1] "x"', None, "line 1: neither"),
        ("[1]\0", None, "line 1: neither"),
        ("[1]\n[2", None, "ends inside the element that begins in line 2"),
        ("x[1]", None, "no JSON array in it"),
        ("", None, "no JSON array in it"),
        ('[{"a": 1},\n{"b": "2]}]', None, "ends inside the element that begins in line 2"),
        ('{"Data": 3, "Date": [1]}', "Data", "no object with an array under 'Data'"),
        ('{"Data": [1]}\n{"data": [2]}', "Data", "line 2: neither"),
        ('{"Data": [1], "Domain"', "Data", "ends before the JSON in it does"),
        ('{"Data": [1]}}', "Data", "line 1: neither"),
    ],
)
def test_what_is_no_array_is_not_dropped(tmp_path, monkeypatch, block, text, key, message):
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.json(:|,) {message}"):
        list(read_elements([tmp_path / "bad.json"], key))


def test_a_bad_element_spoils_no_other(tmp_path):
    path = tmp_path / "values.json.gz"
    with gzip.open(path, "wt") as file:
        file.write('[{"a": 1},\n {"a": nonsense},\n , {"a": 3}, "loooooong"]')
    elements = [record.data for record in read_elements([path], max_element_bytes=10)]
    assert elements == [b'{"a": 1}', None, b"", b'{"a": 3}', None]
    assert [record.line for record in read_elements([path])] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("value", ["x" * 10_000, ["x"] * 2_000, '"\\' * 5_000])
def test_a_long_element_is_not_read_in_many_small_blocks_and_a_string_without_an_end_is_named(monkeypatch, value):
    monkeypatch.setattr(json_stream, "_BLOCK", 10)
    sizes = []

    class Counting(io.BytesIO):
        def read(self, size):
            sizes.append(size)
            return super().read(size)

    text = json.dumps([value, 1]).encode()
    assert [json.loads(data) for _, data in json_stream.elements(Counting(text), "name", None, 2**20)] == [value, 1]
    assert len(sizes) < 20
    assert max(sizes) <= len(text)
    monkeypatch.setattr(json_stream, "MAX_LINE_BYTES", 2**12)
    with pytest.raises(ValueError, match="a string of more than 4,096 bytes"):
        read_texts('{"x": "' + "a" * 2**14)


def read_texts(text):
    return list(text_members(io.BytesIO(text.encode()), "Domain"))


@pytest.mark.parametrize("block", [1, 2, 7, 2**20])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"Data": [{"Domain": "Web"}], "Domain" : \n"Wikipedia"}', ["Wikipedia"]),
        ('{"Data": [{"Domain": "Web", "x": {"Domain": "Web"}}]}', []),
        (r'{"x": "\"Domain\": \"Web\"", "y": "\\", "Domain": "é\u00e9\\"}', ["éé\\"]),
        ('{"Domain": "a", "Domain": "b"}', ["a", "b"]),
        ('{"Domain": 3, "x": ["Domain", "{"], "y": "]"}', []),
        ('[{"Domain": "Web"}]', []),
        ('{"Domain": "Web"} {"x": "y", "Domain": "Web"}', ["Web", "Web"]),
        ("", []),
    ],
)
def test_texts_of_the_outermost_object(monkeypatch, block, text, expected):
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    assert read_texts(text) == expected

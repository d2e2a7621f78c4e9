"""Elements of JSON arrays, found without parsing: against the json module, and in damaged files."""

import gzip
import io
import json
import random

import pytest

from preprocess.pipeline import json_elements
from preprocess.pipeline.json_elements import read_elements
from preprocess.pipeline.records import InputError


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
    monkeypatch.setattr(json_elements, "_BLOCK", block)
    rng = random.Random(block)
    for count in (0, 1, 30):
        values = [random_value(rng) for _ in range(count)]
        inside = {"Version": [1, {"Data": [2]}], "Data": values, "Domain": ["Data", []]}
        for key, whole in ((None, values), ("Data", inside)):
            path = tmp_path / "values.json"
            text = json.dumps(whole, indent=indent, ensure_ascii=False)
            path.write_text(text, encoding="utf-8")
            records = list(read_elements([path], key))
            assert [json.loads(record.data) for record in records] == values
            lines = text.split("\n")
            for number, record in enumerate(records, 1):
                assert record.file == f"{path}, element {number}"
                assert record.data.decode().split("\n")[0] in lines[record.line - 1]
            assert sum(record.progress for record in records) <= path.stat().st_size


def test_a_bad_element_spoils_no_other(tmp_path):
    path = tmp_path / "values.json.gz"
    with gzip.open(path, "wt") as file:
        file.write('[{"a": 1},\n {"a": nonsense},\n , {"a": 3}, "loooooong"]')
    assert [record.data for record in read_elements([path], max_element_bytes=10)] == [
        b'{"a": 1}',
        None,
        b"",
        b'{"a": 3}',
        None,
    ]
    assert [record.line for record in read_elements([path])] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("value", ["x" * 10_000, ["x"] * 2_000, '"\\' * 5_000])
def test_a_long_element_is_not_read_in_many_small_blocks(monkeypatch, value):
    monkeypatch.setattr(json_elements, "_BLOCK", 10)
    sizes = []

    class Counting(io.BytesIO):
        def read(self, size):
            sizes.append(size)
            return super().read(size)

    text = json.dumps([value, 1]).encode()
    assert [json.loads(data) for _, data in json_elements._elements(Counting(text), "name", None)] == [value, 1]
    assert len(sizes) < 20
    assert max(sizes) <= len(text)


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ('[{"a": 1},\n{"b": [2', None, "ends inside the element that begins in line 2; fetch it again"),
        ('[{"a": 1},\n{"b": "2]}]', None, "ends inside the element that begins in line 2"),
        ('{"Data": 3, "Date": [1]}', "Data", "no object with an array under 'Data'"),
        ("plain text", None, "no JSON array"),
        ("", None, "no JSON array"),
    ],
)
def test_files_without_a_whole_array_are_named(tmp_path, text, key, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=f"bad.json: {message}"):
        list(read_elements([path], key))

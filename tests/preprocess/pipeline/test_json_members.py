"""Texts of the outermost object alone, in long files too."""

import io
import json
import random
import string

import pytest

from preprocess.pipeline import json_members
from preprocess.pipeline.json_members import text_members


def read(text, key="Domain"):
    return list(text_members(io.BytesIO(text.encode()), key))


@pytest.mark.parametrize("block", [1, 2, 7, 2**20])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"Domain": "Web"}', ["Web"]),
        ('{"Data": [{"Domain": "Web"}], "Domain" : \n"Wikipedia"}', ["Wikipedia"]),
        ('{"Data": [{"Domain": "Web", "x": {"Domain": "Web"}}]}', []),
        (r'{"x": "\"Domain\": \"Web\"", "y": "\\", "Domain": "é\u00e9\\"}', ["éé\\"]),
        ('{"Domain": "a", "Domain": "b"}', ["a", "b"]),
        ('{"x": "Domain", "y": "Web"}', []),
        ('{"Domain": 3, "x": ["Domain", "{"], "y": "]"}', []),
        ('[{"Domain": "Web"}]', []),
        ("", []),
    ],
)
def test_texts_of_the_outermost_object(monkeypatch, block, text, expected):
    monkeypatch.setattr(json_members, "_BLOCK", block)
    assert read(text) == expected


@pytest.mark.parametrize("seed", range(30))
def test_random_objects(monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(json_members, "_BLOCK", rng.randint(1, 40))

    def value(depth):
        kind = rng.randrange(5) if depth < 4 else 0
        if kind == 1:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind > 1:
            return {rng.choice(["Domain", "Data", "", '"']): value(depth + 1) for _ in range(rng.randrange(4))}
        return rng.choice(["Domain", "Web", 3, None, "".join(rng.choices(string.printable, k=8))])

    whole = {"Data": value(1), "x": value(1), "Domain": value(1)}
    expected = [whole["Domain"]] if isinstance(whole["Domain"], str) else []
    assert read(json.dumps(whole, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)) == expected
    del whole["Domain"]
    assert read(json.dumps(whole)) == []


def test_a_string_without_an_end_is_named(monkeypatch):
    monkeypatch.setattr(json_members, "MAX_LINE_BYTES", 2**12)
    monkeypatch.setattr(json_members, "_BLOCK", 2**10)
    with pytest.raises(ValueError, match="a string of more than 4,096 bytes"):
        read('{"x": "' + "a" * 2**14)

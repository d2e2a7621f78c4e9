import pytest

from fairseq_poolingformer.text.json_values import BadLine
from preprocess.records import keys

BODY = [  # as S2ORC has it: paragraphs that repeat their section, with marks in them
    {"section": "Intro", "text": "one", "cite_spans": [{"text": "[1]", "start": 0}]},
    {"section": "Intro", "text": "two", "cite_spans": []},
    {"section": "", "text": "three"},
    {"section": "Intro", "text": ""},
]


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("a [1] b", ["a [1] b"]),
        (["a", "", "b"], ["a", "", "b"]),
        (BODY, ["Intro", "one", "two", "three", "Intro", ""]),
        ([{"title": "T", "paragraphs": ["a", "b"]}, "c", {"text": "d"}], ["T", "a", "b", "c", "d"]),
        ([{"heading": "H", "title": "T", "text": "a"}, {"heading": None, "title": "T", "text": "b"}], [*"HaTb"]),
        ([], []),
    ],
)
def test_texts_in_any_form(value, texts):
    assert keys.texts_of("key", value) == texts


SECTION = {"heading": "a", "paragraphs": ["x"]}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (3, "wrong type: key is a number, not a string or a list"),
        (SECTION, r"wrong type: key is an object, not text; its keys are heading, paragraphs \(key\.… names one\)"),
        (["x", 3], r"wrong type: key\[1\] is a number, not a string or a section"),
        ([["x"]], r"wrong type: key\[0\] is a list"),
        ([{"who": "A", "content": "x"}], r"no text: key\[0\] lacks text and paragraphs; its keys are who, content "),
        ([{"text": {"x": 1}}], r"wrong type: key\[0\]\.text is neither a string nor a list of strings"),
        ([{"text": ["a", ["b"]]}], r"wrong type: key\[0\]\.text is neither"),
        ([SECTION | {"parts": [{**SECTION, "parts": []}]}], r"nested sections: key\[0\]\.parts has sections of"),
        ('{"a": "b"}', r"JSON inside a string: key holds an object as text .write JSON lines of another shape first"),
        ('["a"]', "JSON inside a string: key holds a list"),
    ],
)
def test_shapes_that_are_not_understood(value, reason):
    with pytest.raises(BadLine, match=f"^{reason}"):
        keys.texts_of("key", value)


def test_a_path_into_a_section_that_has_sections_is_refused():
    deep = {"report": {**SECTION, "parts": [{**SECTION, "parts": []}]}, "report.parts": "x"}
    with pytest.raises(BadLine, match=r"^nested sections: report\.parts has sections of its own"):
        keys.first(deep, ["report.paragraphs"], "article", "--article-key")
    assert keys.first(deep, ["report.parts"], "article", "--article-key") == ("report.parts", "x")
    assert keys.first({"report": SECTION}, ["no", "report.heading"], "article", "") == ("report.heading", "a")


def test_keys_are_names_before_they_are_paths():
    fields = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}, "e": [4]}, "f": "{}"}
    values = [keys.under(fields, key) for key in ("a.b", "a.c.d", "a.c", "a.e.0", "a.x", "f.x", "f")]
    assert values == [1, 3, {"d": 3}, None, None, None, "{}"]

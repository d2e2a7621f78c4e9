import json

import pytest

from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.labels import id_of, label_of, read_labels

LAYOUT = Layout(made_with="the command", ids=("document",))


def test_names_are_those_of_the_folder(tmp_path):
    (tmp_path / "corpus.json").write_text(json.dumps({"labels": ["b", "a"]}))
    assert read_labels(tmp_path, LAYOUT) == ["b", "a"]
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no labels in corpus\.json; make the folder with the command"):
        read_labels(tmp_path, LAYOUT)


def test_ids_are_one_line_and_there_is_always_one():
    assert id_of({"id": " a\n b "}, "x/y.jsonl", 3) == "a b"
    assert id_of({"id": 7}, "x/y.jsonl", 3) == "7"
    assert id_of({}, "x/y.jsonl", 3) == "y.jsonl:3"
    for wrong in (True, 1.5, " "):
        with pytest.raises(BadLine):
            id_of({"id": wrong}, "x/y.jsonl", 3)


def test_labels_are_text_and_one():
    values = ("a \n b", 3, 2.0, True, ["x"], [0])
    assert [label_of({"label": value}) for value in values] == ["a b", "3", "2", "true", "x", "0"]
    for wrong in (" ", 0.5, None, {}, float("nan"), float("inf")):
        with pytest.raises(BadLine, match=r"^no label: 'label' must be a string, a whole number"):
            label_of({"label": wrong})
    for wrong in ([], ["x", "y"]):
        with pytest.raises(BadLine, match=f"^several labels: 'label' is a list of {len(wrong)}"):
            label_of({"label": wrong})

import json

import pytest

from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.labels import ONE, SEVERAL, id_of, read_labels, read_problem_type

LAYOUT = Layout(made_with="the command", ids=("document",))


def test_names_and_kinds_are_those_of_the_folder(tmp_path):
    (tmp_path / "corpus.json").write_text(json.dumps({"labels": ["b", "a"]}))
    assert read_labels(tmp_path, LAYOUT) == ["b", "a"]
    assert read_problem_type(tmp_path, LAYOUT) == ONE
    (tmp_path / "corpus.json").write_text(json.dumps({"problem_type": SEVERAL}))
    assert read_problem_type(tmp_path, LAYOUT) == SEVERAL
    with pytest.raises(ValueError, match=r"no labels in corpus\.json; make the folder with the command"):
        read_labels(tmp_path, LAYOUT)
    (tmp_path / "corpus.json").write_text(json.dumps({"problem_type": "other"}))
    with pytest.raises(ValueError, match=r"problem_type in corpus\.json is not one of single_label"):
        read_problem_type(tmp_path, LAYOUT)


def test_ids_are_one_line_and_there_is_always_one():
    assert id_of({"id": " a\n b "}, "x/y.jsonl", 3) == "a b"
    assert id_of({"id": 7}, "x/y.jsonl", 3) == "7"
    assert id_of({}, "x/y.jsonl", 3) == "y.jsonl:3"
    for wrong in (True, 1.5, " "):
        with pytest.raises(BadLine):
            id_of({"id": wrong}, "x/y.jsonl", 3)

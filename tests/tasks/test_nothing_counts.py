import json
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq.trainer import Trainer

from tests import lab
from tests.tasks.folders import random_wikihop, words, write, write_wikihop
from tests.tasks.question_answering import folders as questions

RNG = np.random.default_rng(0)


def wikihop(folder, answer):
    return write_wikihop(folder, {"valid": [{**random_wikihop(1)[0], "answer": answer}]})


def no_example(folder, _):
    return write_wikihop(folder, {"valid": []})


def triviaqa(folder, answer):
    arrays = {"question": [words(RNG, 4)], "document": [words(RNG, 20)], "answer": [answer]}
    return write(folder, "triviaqa", "valid", arrays, {"id": [json.dumps(["q", "f"])], "notes": [""]})


def classification(folder, label):
    arrays = {"document": [words(RNG, 9)], "label": [label]}
    return write(folder, "document_classification", "valid", arrays, {"id": ["a"]}, labels=["x", "y"])


def hotpotqa(folder, answer_type):
    arrays = {"question": [words(RNG, 4)], "document": [words(RNG, 5)], "paragraph": [[2, 1, 0]]}
    arrays |= {"sentence": [[3, 0]], "answer": [[]], "answer_type": [answer_type]}
    return write(folder, "hotpotqa", "valid", arrays, {"id": ["a"], "titles": ['["t"]'], "notes": [""]})


def load(folder, kind):
    _, task = lab.task(folder, kind, "poolingformer_roberta_tiny")
    task.load_dataset("valid")
    return task


@pytest.mark.parametrize(
    ("make", "kind", "known"),
    [
        (wikihop, "wikihop", [1]),
        (no_example, "wikihop", None),
        (triviaqa, "triviaqa", [2, 4]),
        (classification, "document_classification", [1]),
        (hotpotqa, "hotpotqa", [1]),
    ],
)
def test_a_split_without_anything_that_counts_is_named(make, kind, known, tmp_path):
    trainer = SimpleNamespace(task=load(make(tmp_path / "none", []), kind))
    message = f"--valid-subset valid: none of its {int(known is not None)} examples has what the task counts"
    with pytest.raises(ValueError, match=message):
        Trainer.get_valid_iterator(trainer, "valid")
    if known is not None:
        assert load(make(tmp_path / "known", known), kind).dataset("valid").num_counted() == 1


def test_questions_without_an_answer_count_where_no_answer_is_one(tmp_path):
    examples = [questions.Example([5], list(range(4, 40)), [(0, 8)], [(0, -1, -1, -1)])]
    _, task = questions.build_task(questions.write_folder(tmp_path, {"valid": examples}))
    task.load_dataset("valid")
    assert task.dataset("valid").num_counted() == len(task.dataset("valid")) > 1

"""What tasks with one dictionary remember of it."""

import pytest
from fairseq.data import Dictionary

from fairseq_poolingformer.tasks.shared.base_task import CheckedTask
from fairseq_poolingformer.text.dictionary import symbols_digest
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.shared.test_base_task import setup


def test_the_digest_is_that_of_the_file_whatever_the_task_adds(tmp_path):
    write_wikihop(tmp_path, {"train": random_wikihop(1)})
    task = setup("wikihop", tmp_path)
    symbols = Dictionary.load(str(tmp_path / "dict.txt")).symbols
    assert len(task.dictionary) > len(symbols), "the task adds marks"
    assert task.dictionary_digests == {"dict.txt": symbols_digest(symbols)}


@pytest.mark.parametrize("criterion", [None, "cross_entropy"])
def test_a_loss_is_needed_and_must_fit(tmp_path, monkeypatch, criterion):
    write_wikihop(tmp_path, {"train": random_wikihop(1)})
    monkeypatch.setattr(CheckedTask.__mro__[1], "build_criterion", lambda *arguments, **named: None)
    with pytest.raises(ValueError, match=f"needs --criterion document_task, and it is {criterion}"):
        setup("wikihop", tmp_path).build_criterion(criterion and type("Options", (), {"_name": criterion}))

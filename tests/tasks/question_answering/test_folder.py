"""The names of the arrays, and data folders that are damaged."""

from dataclasses import fields

import pytest

from fairseq_poolingformer.tasks.question_answering.data import QuestionAnsweringSplit
from tests.tasks.question_answering.folders import random_examples, write_folder


def test_the_arrays_are_those_that_preprocessing_writes():
    assert {field.name for field in fields(QuestionAnsweringSplit)} == {
        *QuestionAnsweringSplit.layout.ids,
        *QuestionAnsweringSplit.layout.numbers,
    }


def test_damaged_folders_are_refused(tmp_path):
    folder = write_folder(tmp_path, {"train": random_examples(5)})
    with pytest.raises(FileNotFoundError, match="no split 'dev'"):
        QuestionAnsweringSplit.open(folder, "dev")
    (folder / "train.document.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"train.document.bin: has 0 bytes"):
        QuestionAnsweringSplit.open(folder, "train")
    write_folder(folder, {"train": random_examples(5), "valid": random_examples(6)})
    for suffix in ("bin", "idx"):
        (folder / f"valid.start.{suffix}").replace(folder / f"train.start.{suffix}")
    with pytest.raises(ValueError, match=r"train.start: 6 examples where .*train.question has 5"):
        QuestionAnsweringSplit.open(folder, "train")

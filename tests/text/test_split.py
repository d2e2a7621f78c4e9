from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences, SequencesWriter
from fairseq_poolingformer.text.split import Split, refuse, sums

LAYOUT = Layout(made_with="a test", ids=("question",), numbers=("answer",))


@dataclass(frozen=True)
class Pairs(Split):
    layout: ClassVar[Layout] = LAYOUT

    question: Sequences
    answer: Sequences

    def check(self) -> None:
        refuse(self.answer, self.answer.sizes > self.question.sizes, "its answer is longer than its question")


def write(folder: Path, **arrays: list[list[int]]) -> None:
    for name, sequences in arrays.items():
        with SequencesWriter(folder / f"valid.{name}", np.dtype(np.int32)) as writer:
            for sequence in sequences:
                writer.append(np.array(sequence, np.int32))


def test_arrays_are_mapped_under_their_names(tmp_path):
    write(tmp_path, question=[[5, 6], [7]], answer=[[1], []])
    split = Pairs.open(tmp_path, "valid")
    assert len(split) == 2
    assert [split.question[0].tolist(), split.answer[0].tolist()] == [[5, 6], [1]]
    with pytest.raises(FileNotFoundError):
        Pairs.open(tmp_path, "train")
    assert sums(np.array([1, 2, 4, 8], np.int8), np.array([0, 2, 2, 4])).tolist() == [3, 0, 12]


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        ([[5, 6], [7]], [[1], [2], [3]], r"answer: 3 examples where .*valid\.question has 2; preprocess again"),
        ([[5, 6], [7], [8], [9]], [[1], [2], [3, 3], [4, 4]], "answer, example 2: its answer is longer than its ques"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(tmp_path, question, answer, message):
    write(tmp_path, question=question, answer=answer)
    with pytest.raises(ValueError, match=rf"valid\.{message}"):
        Pairs.open(tmp_path, "valid")

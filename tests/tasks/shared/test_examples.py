import itertools

import numpy as np
import pytest

from fairseq_poolingformer.tasks.shared.examples import count_pieces, cut, cut_questions
from fairseq_poolingformer.text.sequences import Sequences, SequencesWriter


@pytest.mark.parametrize("room", [1, 5, 7])
def test_pieces_cover_a_document(room):
    for size in range(40):
        pieces = cut(size, room)
        assert len(pieces) == count_pieces(np.array([size]), room)[0]
        assert (pieces[0][0], pieces[-1][1]) == (0, size)
        assert all(0 < end - begin <= room for begin, end in pieces) or pieces == [(0, 0)]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(pieces))
        assert cut(size, room, 2) == pieces[:2]
        assert count_pieces(np.array([size]), room, 2)[0] == min(2, len(pieces))


def test_questions_that_are_cut_are_counted(tmp_path, caplog):
    with SequencesWriter(tmp_path / "train.question", np.int32) as writer:
        for size in (3, 5, 4, 9):
            writer.append(np.arange(size))
    caplog.set_level("INFO")
    assert cut_questions(Sequences(tmp_path / "train.question"), 4).tolist() == [3, 4, 4, 4]
    assert "train.question: 2 of 4 questions are cut to 4 tokens" in caplog.text

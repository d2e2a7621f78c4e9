import itertools

import numpy as np
import pytest

from fairseq_poolingformer.tasks.shared.examples import count_pieces, cut, cut_questions
from fairseq_poolingformer.text.sequences import Sequences, SequencesWriter


@pytest.mark.parametrize(("room", "overlap"), [(5, 0), (5, 2), (1, 0), (7, 6)])
def test_pieces_cover_a_document(room, overlap):
    for size in range(40):
        pieces = cut(size, room, overlap=overlap)
        assert len(pieces) == count_pieces(np.array([size]), room, overlap=overlap)[0]
        assert pieces[0][0] == 0
        assert pieces[-1][1] == size
        assert all(end - begin <= room for begin, end in pieces)
        for before, after in itertools.pairwise(pieces):
            assert before[1] - after[0] == overlap
            assert before[1] < size  # the last piece is the first that reaches the end
        assert cut(size, room, 2, overlap) == pieces[:2]
        assert count_pieces(np.array([size]), room, 2, overlap)[0] == min(2, len(pieces))


def test_pieces_without_room_are_refused():
    with pytest.raises(ValueError, match="room must be more than overlap"):
        cut(3, 2, overlap=2)


def test_questions_that_are_cut_are_counted(tmp_path, caplog):
    with SequencesWriter(tmp_path / "train.question", np.int32) as writer:
        for size in (3, 5, 4, 9):
            writer.append(np.arange(size))
    caplog.set_level("INFO")
    assert cut_questions(Sequences(tmp_path / "train.question"), 4).tolist() == [3, 4, 4, 4]
    assert "train.question: 2 of 4 questions are cut to 4 tokens" in caplog.text

"""<s> … </s> around documents, and cutting them."""

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.summarization.task import FramedDataset

BOS, EOS = 0, 2


class Stored(list):
    def __getitem__(self, index):
        return torch.tensor(super().__getitem__(index))


def frame(sequences, max_length):
    sizes = np.array([len(s) for s in sequences], dtype=np.int32)
    return FramedDataset(Stored(sequences), sizes, bos=BOS, eos=EOS, max_length=max_length)


def test_frames_and_cuts_and_counts():
    dataset = frame([[5, 6, EOS], [5, 6, 7, 8, EOS], [EOS]], max_length=5)
    assert [dataset[n].tolist() for n in range(3)] == [[BOS, 5, 6, EOS], [BOS, 5, 6, 7, EOS], [BOS, EOS]]
    assert dataset.sizes.tolist() == [4, 5, 2]
    assert [dataset.size(n) for n in range(3)] == [4, 5, 2]
    assert (dataset.num_truncated, dataset.num_tokens_cut) == (1, 1)


def test_no_limit():
    dataset = frame([[*range(3, 50), EOS]], max_length=None)
    assert dataset.sizes.tolist() == [49]
    assert dataset.num_truncated == 0


def test_the_stored_sequence_is_not_changed():
    stored = torch.tensor([5, 6, 7, 8, EOS])
    dataset = FramedDataset([stored], np.array([5]), bos=BOS, eos=EOS, max_length=4)
    assert dataset[0].tolist() == [BOS, 5, 6, EOS]
    assert stored.tolist() == [5, 6, 7, 8, EOS]


def test_too_short_a_limit_is_refused():
    with pytest.raises(ValueError, match="max_length"):
        frame([[5, EOS]], max_length=2)

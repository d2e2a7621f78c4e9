"""Results of masks are kept for the very same tensors, and for no others."""

import numpy
import pytest
import torch
from torch._subclasses import FakeTensorMode

from fairseq_poolingformer.attention import Pooling, pool_keys
from fairseq_poolingformer.attention import remembered as remembered_module
from fairseq_poolingformer.attention.remembered import RESULTS, remembered


@pytest.fixture
def doubled(monkeypatch):
    """A function that notes its calls, on CPUs, too."""
    monkeypatch.setattr(remembered_module, "WRITTEN_BY_OTHERS", ())
    calls = []

    @remembered
    def double(x, number=0):
        calls.append(number)
        return 2 * x if isinstance(x, torch.Tensor) else torch.full((2,), x)

    double.calls = calls
    return double


def test_the_same_tensor_and_numbers_are_computed_once(doubled):
    x = torch.ones(3)
    assert doubled(x, 1) is doubled(x, 1)
    assert doubled(x, 2) is not doubled(x, 1)
    assert doubled.calls == [1, 2]


def test_an_equal_tensor_and_a_changed_one_are_computed_anew(doubled):
    x = torch.ones(3)
    first = doubled(x)
    assert doubled(x.clone()) is not first
    x += 1
    assert doubled(x).tolist() == [4.0, 4.0, 4.0]
    assert first.tolist() == [2.0, 2.0, 2.0]


def test_a_new_tensor_in_the_memory_of_a_former_one_is_another(doubled):
    """What is kept keeps its tensors, too, so that no other can have their numbers."""
    for value in range(3 * RESULTS):
        assert doubled(torch.full((3,), value)).tolist() == [2 * value] * 3


def test_only_the_last_results_are_kept(doubled):
    tensors = [torch.ones(1) for _ in range(RESULTS + 1)]
    for x in tensors:
        doubled(x)
    for x in tensors[1:]:
        doubled(x)
    assert len(doubled.calls) == RESULTS + 1
    doubled(tensors[0])
    assert len(doubled.calls) == RESULTS + 2


def test_masks_on_a_cpu_are_looked_at_each_time():
    """A mask shares its memory with numpy, and the pools follow it."""
    mask = numpy.zeros((1, 6), dtype=bool)
    padding, x, pooling = torch.from_numpy(mask), torch.arange(6.0).view(1, 1, 6, 1), Pooling(2, 2)
    first, _ = pool_keys(x, pooling, padding_mask=padding)
    mask[0, 5] = True
    second, _ = pool_keys(x, pooling, padding_mask=padding)
    assert (first.flatten().tolist(), second.flatten().tolist()) == ([0.5, 2.5, 4.5], [0.5, 2.5, 4.0])


def test_inference_mode_and_fake_tensors_leave_nothing_behind(doubled):
    with torch.inference_mode():
        of_inference = torch.ones(3)
        doubled(4), doubled(of_inference)
    assert not doubled(4).is_inference()
    assert doubled(of_inference) is not doubled(of_inference)
    with FakeTensorMode():
        doubled(5)
    assert doubled(5).tolist() == [5, 5]

"""Where freed memory is kept."""

import pytest
import torch

from fairseq_poolingformer.patches.fixes import freed_memory as allocator


@pytest.mark.parametrize("has_gpu", [False, True])
def test_freed_memory_is_kept_without_a_gpu(monkeypatch, has_gpu):
    calls = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(allocator, "keep_freed_memory", lambda: calls.append("kept"))
    allocator.apply()
    assert calls == ([] if has_gpu else ["kept"])

"""Small blocks for the tests of the attention."""

import pytest

from fairseq_poolingformer.attention.backends.block import fused, lanes


@pytest.fixture(params=[32, 3])
def small_blocks(request, monkeypatch):
    """Blocks of a few queries, so that small inputs cross many block edges."""
    if request.param < 32:
        monkeypatch.setattr(lanes, "MIN_BLOCK", request.param)
        monkeypatch.setattr(lanes, "SCORES_PER_BLOCK", 1)
        monkeypatch.setattr(lanes, "MAX_BLOCK", request.param)
        for name, value in {"QUERIES": 5, "KEYS": 4, "BLOCKS": 2, "MULTIPLE": 3}.items():
            monkeypatch.setattr(fused, name, value)

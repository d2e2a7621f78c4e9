"""Comparisons with fairseq's models need transformers beside fairseq, and are skipped without."""

import sys
from importlib.util import find_spec

# fairseq requires torchaudio; one made for another torch does not load, which transformers does not survive.
sys.modules.setdefault("torchaudio", None)

import pytest  # noqa: E402 - after torchaudio
from transformers.models.modernbert import modeling_modernbert  # noqa: E402

import fairseq_poolingformer  # noqa: E402

if find_spec("fairseq"):
    fairseq_poolingformer.register()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Skip what needs fairseq."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fairseq":
            pytest.skip("needs fairseq")
        raise


pytest_runtest_setup = pytest_runtest_call


@pytest.fixture
def doubles(monkeypatch):
    """transformers rotates ModernBERT's queries and keys in float32, whatever their dtype; here as they are."""

    def rotated(q, k, cos, sin, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return tuple(x * cos + modeling_modernbert.rotate_half(x) * sin for x in (q, k))

    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotated)

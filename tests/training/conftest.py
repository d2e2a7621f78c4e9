"""The tiny corpus of the tests of fairseq's command lines, and what its trainer logs."""

import pytest
from fairseq.trainer import Trainer

from tests.patches.conftest import corpus, dictionary

__all__ = ["corpus", "dictionary"]


@pytest.fixture
def logged(monkeypatch):
    """The values that the trainer logs of every update, and of every validation batch."""
    records = {"train_step": [], "valid_step": []}
    for name, outputs in records.items():
        original = getattr(Trainer, name)

        def step(self, *args, original=original, outputs=outputs, **kwargs):
            outputs.append(original(self, *args, **kwargs))
            return outputs[-1]

        monkeypatch.setattr(Trainer, name, step)
    return records

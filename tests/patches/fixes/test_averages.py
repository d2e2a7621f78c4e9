"""The moving average of a model's parameters."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.models.ema import EMA
from torch import nn

from tests.patches.helpers import unpatched

CONFIG = {"ema_decay": 0.75, "ema_seed_model": None, "ema_update_freq": 1, "ema_start_update": 0}


def counting_model(weight, count):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    model.register_buffer("count", torch.tensor(count))
    return model


@pytest.mark.parametrize("fp32", [False, True])
def test_integers_are_taken_over(fp32):
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=fp32))
    average.step(counting_model(8.0, 5), updates=1)
    assert average.get_model().weight.item() == 0.75 * 4 + 0.25 * 8
    assert average.get_model().count.item() == 5
    assert average.get_model().count.dtype == torch.int64


def test_names_to_skip_are_kept():
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=False), skip_keys=["weight"])
    average.step(counting_model(8.0, 5), updates=1)
    assert (average.get_model().weight.item(), average.get_model().count.item()) == (8, 5)


def test_integers_are_refused_unpatched(monkeypatch):
    unpatched(monkeypatch, EMA, "__init__")
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=False))
    with pytest.raises(RuntimeError, match="can't be cast"):
        average.step(counting_model(8.0, 5), updates=1)

"""Which backend each kind of call takes, on a CPU and on a pretended device, and self-checks of all kinds."""

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.backends.block import backend as block
from fairseq_poolingformer.doctor import choices
from tests.other_device import other_device


@pytest.fixture(params=["cpu", "meta"])
def device(request):
    if request.param == "cpu":
        yield "cpu"
    else:
        with other_device():
            yield "meta"


def test_every_kind_has_a_backend_and_the_faster_ones_a_reason(device, monkeypatch):
    monkeypatch.setattr(BACKENDS["triton"], "why_not", lambda call: "of the weather" if call.dropout_p else None)
    found = choices.choices(device)
    assert set(found.backends) == set(choices.KINDS)
    for kind, chosen in found.backends.items():
        assert list(chosen) == list(choices.DTYPES)
        assert set(chosen.values()) == {"block" if "dropout" in kind else "triton"}
    dropped = [(kind, dtype) for dtype in choices.DTYPES for kind in choices.KINDS if "dropout" in kind]
    assert found.refusals == {"triton: of the weather": dropped}


def test_every_kind_is_checked(device, monkeypatch):
    """Here with the block backend for kernels; what is wrong with one kind is told."""
    checked = []

    def difference(run, call):
        checked.append((call.query.device.type, call.query.dtype))
        return "no such luck" if call.dropout_p else None

    triton = BACKENDS["triton"]
    monkeypatch.setattr(self_check, "difference", difference)
    monkeypatch.setattr(triton, "why_not", lambda call: "too wide" if call.query.dtype == torch.float64 else None)
    monkeypatch.setattr(triton, "self_check", lambda call: self_check.failure(lambda call: block.run(call), call))
    found = list(choices.self_checks(device))
    assert [(x.kind, x.dtype) for x in found] == [(k, d) for d in choices.DTYPES[:3] for k in choices.KINDS]
    assert checked == [(device, x.dtype) for x in found]
    for x in found:
        assert x.seconds > 0
        assert (x.failure is not None) == ("dropout" in x.kind)


def test_a_backend_without_a_gpu_is_not_checked():
    assert list(choices.self_checks("cpu")) == []

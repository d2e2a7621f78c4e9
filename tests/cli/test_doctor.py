"""The report on an installation and its backends."""

import importlib.metadata
import re
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.call import DTYPES
from fairseq_poolingformer.cli import doctor
from fairseq_poolingformer.cli.doctor import main
from tests.other_device import other_device


def test_the_report(capsys):
    assert main(["--device", "cpu"]) == 0
    report = capsys.readouterr().out
    assert report.startswith("# poolingformer doctor\n\n- fairseq-poolingformer ")
    assert f"\n- torch {importlib.metadata.version('torch')}\n" in report
    assert "\n- the plugin fits this fairseq\n\n## Backends on cpu, in training\n\n|  | float32 | bfloat16 |" in report
    assert "\n| level two | block | block | block | block |\n" in report
    assert re.search(r"\n- not triton: .* \(44 calls\)\n", report)


def test_gpus_are_listed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert [line.split(" (")[0] for line in doctor.gpus()] == ["no GPU"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    x1 = SimpleNamespace(name="NVIDIA X1", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: x1)
    assert list(doctor.gpus()) == [f"cuda:{number}: NVIDIA X1, compute capability 9.0" for number in (0, 1)]


def test_a_device_that_is_not_there_is_a_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["--device", "cuda:99"])
    assert "cuda:99 is not there" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_kind_has_a_backend_and_the_faster_ones_a_reason(device, monkeypatch):
    """With kernels that run here but for dropout, and whose self-check fails for dilated windows in float32."""
    triton = BACKENDS["triton"]
    monkeypatch.setattr(triton, "why_not", lambda call: "of the weather" if call.dropout_p else None)
    monkeypatch.setattr(
        self_check,
        "difference",
        lambda run, call: "it is odd" if call.window.dilation > 1 and call.query.dtype == torch.float32 else None,
    )
    monkeypatch.setattr(triton, "self_check", lambda call: self_check.failure(main, call))
    with other_device():
        lines = list(doctor.backends(device))
    kinds = list(doctor.calls("cpu", torch.float32))
    expected = {kind: ["block" if "dropout" in kind else "triton"] * len(DTYPES) for kind in kinds}
    expected["level one, dilated"][0] = "block"
    assert lines[2 : 2 + len(kinds)] == [f"| {kind} | {' | '.join(chosen)} |" for kind, chosen in expected.items()]
    failed, refused = sorted(line for line in lines if line.startswith("- not triton"))
    assert refused == "- not triton: of the weather (8 calls)"
    assert re.fullmatch(
        r"- not triton: its self-check failed \(.*dilation\): it is odd \(level one, dilated float32\)", failed
    )

"""The report on this machine."""

import argparse
import re
from pathlib import Path

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.call import DTYPES
from fairseq_poolingformer.cli import doctor
from fairseq_poolingformer.cli.doctor import main
from tests.other_device import other_device


def sections(text):
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert title.startswith("# poolingformer doctor, 20")
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is no GPU")
def test_without_a_gpu(capsys, tmp_path):
    options = ["--folder", str(tmp_path), "--output", str(tmp_path / "report.md")]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "report.md").read_text() == printed
    found = sections(printed)
    assert list(found) == ["Versions", "Machine", "fairseq", "Backends on cpu, in training"]
    assert f"- torch {torch.__version__}\n" in found["Versions"]
    cpu, gpu, memory, disk = found["Machine"].strip().splitlines()
    assert re.fullmatch(rf"- cpu: .+, {torch.get_num_threads()} threads", cpu)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "neither CUDA nor HIP"
    assert gpu == f"- no GPU: torch {torch.__version__} is a build with {build} and sees none"
    assert re.fullmatch(r"- memory: \d+\.\d of \d+\.\d GiB free", memory)
    assert re.fullmatch(rf"- disk of {tmp_path}: \d+\.\d GiB free", disk)
    assert found["fairseq"].strip() == "- the plugin fits it"
    backends = found["Backends on cpu, in training"]
    assert "\n|  | float32 | bfloat16 | float16 | float64 |\n| --- |" in backends
    assert "\n| level two | block | block | block | block |\n" in backends
    assert re.search(r"\n- not triton: .* \(44 of 44\)\n", backends)


def test_on_a_named_device(capsys, tmp_path, monkeypatch):
    """With kernels that run here, of which one kind is broken."""
    triton = BACKENDS["triton"]
    why_not = {torch.float32: None, torch.bfloat16: None}
    monkeypatch.setattr(triton, "why_not", lambda call: why_not.get(call.query.dtype, "of the weather"))
    monkeypatch.setattr(self_check, "difference", lambda run, call: "it is odd" if call.window.dilation > 1 else None)
    monkeypatch.setattr(triton, "self_check", lambda call: self_check.failure(main, call))
    monkeypatch.setattr(triton, "run", BACKENDS["block"].run)
    assert main(["--device", "cpu", "--folder", str(tmp_path)]) == 0
    checks = sections(capsys.readouterr().out)["Self-checks on cpu"]
    assert checks.count("| passed |") == 2 * 10
    assert len(re.findall(r"^\| triton \| level one, dilated \| (?:float32|bfloat16) \| \*\*failed", checks, re.M)) == 2
    assert "\n- level one, dilated, float32: its self-check failed on cpu (float32, head dimension 64" in checks


def test_gpus_are_listed_and_the_named_one_is_checked(monkeypatch):
    used = []
    properties = {"device_count": lambda: 2, "get_device_name": lambda n: "NVIDIA X1"}
    properties |= {"get_device_capability": lambda n: (9, 0), "mem_get_info": lambda n: (2**30, 3 * 2**30)}
    for name, value in properties.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(doctor, "backends", lambda device: [f"backends {device}"])
    monkeypatch.setattr(doctor, "self_checks", lambda device: used.append(device) or [])
    lines = list(doctor.report(argparse.Namespace(device="cuda:1", folder=Path())))
    assert "- cuda:1: NVIDIA X1, compute capability 9.0, 1.0 of 3.0 GiB free" in lines
    assert {"backends cpu", "backends cuda:0", "backends cuda:1"} <= set(lines)
    assert used == ["cuda:1"]


def test_what_cannot_be_is_a_sentence(capsys, tmp_path):
    assert main(["--folder", str(tmp_path / "none")]) == 1
    assert "none: No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--device", "cuda:99"])
    assert "cuda:99 is not there" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_kind_has_a_backend_and_the_faster_ones_a_reason(device, monkeypatch):
    monkeypatch.setattr(BACKENDS["triton"], "why_not", lambda call: "of the weather" if call.dropout_p else None)
    with other_device():
        lines = list(doctor.backends(device))
    kinds = list(doctor.calls("cpu", torch.float32))
    assert lines[2 : 2 + len(kinds)] == [
        f"| {kind} | {' | '.join(['block' if 'dropout' in kind else 'triton'] * len(DTYPES))} |" for kind in kinds
    ]
    assert lines[-1] == "- not triton: of the weather (8 of 44)"

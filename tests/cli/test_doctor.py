"""The report on this machine."""

import re

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.cli import doctor
from fairseq_poolingformer.cli.doctor import main
from fairseq_poolingformer.doctor import machine, timing


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(machine, "DISK_BYTES", 2**20)
    monkeypatch.setattr(timing, "RUNS", 1)
    few = {name: BACKENDS[name] for name in ("triton", "block", "reference", "sdpa")}  # none that compiles here
    monkeypatch.setattr(timing, "BACKENDS", few)


def sections(text):
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert title.startswith("# poolingformer doctor, 20")
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is no GPU")
def test_without_a_gpu(capsys, tmp_path):
    options = ["--gpu", "--tune", "--folder", str(tmp_path), "--output", str(tmp_path / "report.md")]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "report.md").read_text() == printed
    assert printed.endswith("\n\nNo GPU: nothing was checked or timed.\n\nNo GPU: nothing was tuned.\n")
    found = sections(printed)
    assert list(found) == ["Versions", "Devices", "fairseq", "Memory and disk", "Backends on cpu, in training"]
    assert f"- torch {torch.__version__}\n" in found["Versions"]
    assert "\n- no GPU: torch" in found["Devices"]
    assert f"disk of {tmp_path}: " in found["Memory and disk"]
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
    assert main(["--device", "cpu", "--lengths", "64", "--folder", str(tmp_path)]) == 0
    found = sections(capsys.readouterr().out)
    checks, times = found["Self-checks on cpu"], found["Times on cpu, float32"]
    assert checks.count("| passed |") == 2 * 10
    assert len(re.findall(r"^\| triton \| level one, dilated \| (?:float32|bfloat16) \| \*\*failed", checks, re.M)) == 2
    assert "\n- level one, dilated, float32: its self-check failed on cpu (float32, head dimension 64" in checks
    assert re.search(r"A product of matrices: [\d.e+-]+ TFLOP/s", times)
    for row in ("level one | triton", "level two | block", "full attention | sdpa"):
        assert re.search(rf"^\| 64 \| {re.escape(row)} \| [\d.e-]+ \(\d+%\) \| [\d.e-]+ \(\d+%\) \|$", times, re.M)


def test_a_gpu_is_the_device(monkeypatch):
    used = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(machine, "devices", list)
    monkeypatch.setattr(machine, "fused_optimizer", str)
    monkeypatch.setattr(doctor, "backends", lambda device: [f"backends {device}"])
    monkeypatch.setattr(doctor, "self_checks", lambda device: used.append(device) or [])
    monkeypatch.setattr(doctor, "times", lambda *given: used.append(given) or [])
    for options, device in ((["--gpu"], "cuda:0"), (["--device", "cuda:1", "--precision", "fp16"], "cuda:1")):
        args = doctor.make_parser().parse_args(options)
        lines = list(doctor.report(args))
        assert {"backends cpu", "backends cuda:0", "backends cuda:1"} <= set(lines)
        assert used == [device, (device, args.precision, [4096, 16384])]
        used.clear()


def test_what_cannot_be_is_a_sentence(capsys, tmp_path):
    assert main(["--folder", str(tmp_path / "none")]) == 1
    assert "none: No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--device", "cuda:99"])
    assert "cuda:99 is not there" in capsys.readouterr().err

"""The report on this machine."""

import importlib.metadata
import re
import shutil
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.backends.block import backend as block
from fairseq_poolingformer.attention.call import DTYPES
from fairseq_poolingformer.cli import doctor
from fairseq_poolingformer.cli.doctor import main
from tests.other_device import other_device


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(doctor, "DISK_BYTES", 2**20)


def sections(text):
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert title.startswith("# poolingformer doctor, 20")
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is no GPU")
def test_without_a_gpu(capsys, tmp_path):
    options = ["--gpu", "--folder", str(tmp_path), "--output", str(tmp_path / "report.md")]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "report.md").read_text() == printed
    assert printed.endswith("\n\nNo GPU: nothing was checked.\n")
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
    assert main(["--device", "cpu", "--folder", str(tmp_path)]) == 0
    checks = sections(capsys.readouterr().out)["Self-checks on cpu"]
    assert checks.count("| passed |") == 2 * 10
    assert len(re.findall(r"^\| triton \| level one, dilated \| (?:float32|bfloat16) \| \*\*failed", checks, re.M)) == 2
    assert "\n- level one, dilated, float32: its self-check failed on cpu (float32, head dimension 64" in checks


def test_a_gpu_is_the_device(monkeypatch):
    used = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(doctor, "devices", list)
    monkeypatch.setattr(doctor, "fused_optimizer", str)
    monkeypatch.setattr(doctor, "backends", lambda device: [f"backends {device}"])
    monkeypatch.setattr(doctor, "self_checks", lambda device: used.append(device) or [])
    for options, device in ((["--gpu"], "cuda:0"), (["--device", "cuda:1"], "cuda:1")):
        args = doctor.make_parser().parse_args(options)
        lines = list(doctor.report(args))
        assert {"backends cpu", "backends cuda:0", "backends cuda:1"} <= set(lines)
        assert used == [device]
        used.clear()


def test_what_cannot_be_is_a_sentence(capsys, tmp_path):
    assert main(["--folder", str(tmp_path / "none")]) == 1
    assert "none: No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--device", "cuda:99"])
    assert "cuda:99 is not there" in capsys.readouterr().err


def test_the_machine():
    (cpu, *gpus) = doctor.devices()
    assert cpu.startswith("cpu: ")
    assert cpu.endswith(f", {torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        assert gpus == [f"no GPU: torch {torch.__version__} is a build with {build()} and sees none"]
    assert re.fullmatch(r"memory: \d+\.\d of \d+\.\d GiB free", doctor.memory())
    assert doctor.fused_optimizer("cpu") == "fused AdamW runs on cpu"
    assert doctor.fused_optimizer("meta").startswith("fused AdamW does not run on meta: ")


def build():
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "neither CUDA nor HIP"


def test_gpus_are_listed_with_their_memory(monkeypatch):
    properties = {"device_count": lambda: 1, "get_device_name": lambda n: "NVIDIA X1"}
    properties |= {"get_device_capability": lambda n: (9, 0), "mem_get_info": lambda n: (2**30, 3 * 2**30)}
    for name, value in properties.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert doctor.devices()[1:] == ["cuda:0: NVIDIA X1, compute capability 9.0, 1.0 of 3.0 GiB free"]


def test_the_disk_is_written_to_and_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "DISK_BYTES", 2**21)
    assert re.fullmatch(rf"disk of {tmp_path}: \d+\.\d GiB free, \d+ MB/s written", doctor.disk(tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        doctor.disk(tmp_path / "none")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**22))
    assert doctor.disk(tmp_path).endswith("too little to measure how fast it is written to")


def test_fairseq_and_apex():
    line, patched, apex = doctor.fairseq()
    assert re.match(r"fairseq(-fixed)? 0\.12\.\S+, (prebuilt|built)", line)
    assert re.search(r": \d\d functions$", patched)
    assert apex.startswith("apex is ")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (("apex",), "apex is installed without kernels"),
        (("apex", "amp_C"), "apex is installed with kernels of adam"),
        (("apex", "amp_C", "fused_layer_norm_cuda"), "apex is installed with kernels of layer normalization and adam"),
    ],
)
def test_kernels_of_apex(found, text, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: name if name in found else None)
    assert doctor._apex() == text


def test_no_fairseq(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert doctor.fairseq()[0].startswith("fairseq is not installed")


@pytest.mark.parametrize(
    ("tag", "word"), [("py3-manylinux_2_28_x86_64", "prebuilt"), ("cp311-linux_x86_64", "built from source")]
)
def test_prebuilt_or_built(tag, word, monkeypatch):
    wheel = SimpleNamespace(version="1", read_text=lambda name: f"Tag: {tag}\n")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: wheel)
    assert doctor.fairseq()[0].split(", ")[1] == word


@pytest.fixture(params=["cpu", "meta"])
def device(request):
    if request.param == "cpu":
        yield "cpu"
    else:
        with other_device():
            yield "meta"


def test_every_kind_has_a_backend_and_the_faster_ones_a_reason(device, monkeypatch):
    monkeypatch.setattr(BACKENDS["triton"], "why_not", lambda call: "of the weather" if call.dropout_p else None)
    found = doctor.choices(device)
    assert set(found.backends) == set(doctor.calls("cpu", torch.float32))
    for kind, chosen in found.backends.items():
        assert list(chosen) == list(DTYPES)
        assert set(chosen.values()) == {"block" if "dropout" in kind else "triton"}
    dropped = [(kind, dtype) for dtype in DTYPES for kind in doctor.calls("cpu", torch.float32) if "dropout" in kind]
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
    found = list(doctor.checks(device))
    assert [(x.kind, x.dtype) for x in found] == [
        (k, d) for d in DTYPES[:3] for k in doctor.calls("cpu", torch.float32)
    ]
    assert checked == [(device, x.dtype) for x in found]
    for x in found:
        assert x.seconds > 0
        assert (x.failure is not None) == ("dropout" in x.kind)


def test_a_backend_without_a_gpu_is_not_checked():
    assert list(doctor.checks("cpu")) == []

"""What is found of the machine and the installation, and what is missing from it."""

import importlib.metadata
import re
import shutil
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.doctor import machine


def test_the_machine():
    (cpu, *gpus) = machine.devices()
    assert cpu.startswith("cpu: ")
    assert cpu.endswith(f", {torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        assert gpus == [f"no GPU: torch {torch.__version__} is a build with {build()} and sees none"]
    assert re.fullmatch(r"memory: \d+\.\d of \d+\.\d GiB free", machine.memory())
    assert machine.fused_optimizer("cpu") == "fused AdamW runs on cpu"
    assert machine.fused_optimizer("meta").startswith("fused AdamW does not run on meta: ")


def build():
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "neither CUDA nor HIP"


def test_gpus_are_listed_with_their_memory(monkeypatch):
    properties = {"device_count": lambda: 1, "get_device_name": lambda n: "NVIDIA X1"}
    properties |= {"get_device_capability": lambda n: (9, 0), "mem_get_info": lambda n: (2**30, 3 * 2**30)}
    for name, value in properties.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert machine.devices()[1:] == ["cuda:0: NVIDIA X1, compute capability 9.0, 1.0 of 3.0 GiB free"]


def test_the_disk_is_written_to_and_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "DISK_BYTES", 2**21)
    assert re.fullmatch(rf"disk of {tmp_path}: \d+\.\d GiB free, \d+ MB/s written", machine.disk(tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        machine.disk(tmp_path / "none")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**22))
    assert machine.disk(tmp_path).endswith("too little to measure how fast it is written to")


def test_fairseq_and_apex():
    line, patched, apex = machine.fairseq()
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
    monkeypatch.setattr(machine, "find_spec", lambda name: name if name in found else None)
    assert machine._apex() == text


def test_no_fairseq(monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda name: None)
    assert machine.fairseq()[0].startswith("fairseq is not installed")


@pytest.mark.parametrize(
    ("tag", "word"), [("py3-manylinux_2_28_x86_64", "prebuilt"), ("cp311-linux_x86_64", "built from source")]
)
def test_prebuilt_or_built(tag, word, monkeypatch):
    wheel = SimpleNamespace(version="1", read_text=lambda name: f"Tag: {tag}\n")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: wheel)
    assert machine.fairseq()[0].split(", ")[1] == word

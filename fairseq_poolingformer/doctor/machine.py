"""The machine and the installation, a line for each thing that is found."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from fairseq_poolingformer.cli.command import load_fairseq

GIB = 2**30
DISK_BYTES, BLOCK_BYTES = 2**26, 2**20  # written to measure the disk, and at a time


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def devices() -> list[str]:
    """The processor and every GPU, or that there is none."""
    found = [f"cpu: {processor()}, {torch.get_num_threads()} threads"]
    for number in range(torch.cuda.device_count()):
        name, (major, minor) = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
        free, total = torch.cuda.mem_get_info(number)
        memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        found.append(f"cuda:{number}: {name}, compute capability {major}.{minor}, {memory}")
    if not torch.cuda.device_count():
        builds = {"CUDA": torch.version.cuda, "HIP": torch.version.hip}
        build = next((f"{name} {version}" for name, version in builds.items() if version), "neither CUDA nor HIP")
        found.append(f"no GPU: torch {torch.__version__} is a build with {build} and sees none")
    return found


def fairseq() -> list[str]:
    """How fairseq is installed; that it is not, if so."""
    name = next((name for name in ("fairseq-fixed", "fairseq") if _version(name)), None)
    if name is None or find_spec("fairseq") is None:
        return ["fairseq is not installed: what trains and generates needs it, the attention and transformers do not"]
    tags = importlib.metadata.distribution(name).read_text("WHEEL") or ""
    origin = "prebuilt" if "manylinux" in tags else "built from source"
    line = f"{name} {_version(name)}, {origin}"
    try:
        load_fairseq(tasks=())
    except (ImportError, AttributeError) as error:
        return [line, f"the plugin does not fit this fairseq: {error}"]
    from fairseq_poolingformer.patches import REPLACED  # here, since it needs numpy

    compiled = find_spec("fairseq.data.data_utils_fast") is not None
    patched = f"patched by the plugin, in processes that load it: {len(REPLACED)} functions"
    return [line + ("" if compiled else ", without its compiled extensions"), patched, _apex()]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _apex() -> str:
    if find_spec("apex") is None:
        return "apex is not installed: fairseq's adam is not fused on a GPU; --optimizer fused_adamw is"
    kernels = {"layer normalization": "fused_layer_norm_cuda", "adam": "amp_C"}
    found = [what for what, module in kernels.items() if find_spec(module) is not None]
    return f"apex is installed with kernels of {' and '.join(found)}" if found else "apex is installed without kernels"


def fused_optimizer(device: str) -> str:
    """Whether PyTorch's fused AdamW, ``--optimizer fused_adamw``, runs on a device."""
    parameter = torch.zeros(4, device=device, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    try:
        torch.optim.AdamW([parameter], fused=True).step()
    except (RuntimeError, NotImplementedError) as error:
        return f"fused AdamW does not run on {device}: {' '.join(str(error).split())[:200]}"
    return f"fused AdamW runs on {device}"


def memory() -> str:
    """The free memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "free memory is not known here"
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return f"memory: {kib['MemAvailable'] * 1024 / GIB:.1f} of {kib['MemTotal'] * 1024 / GIB:.1f} GiB free"


def disk(folder: Path) -> str:
    """The free space of a folder's disk, and the speed at which a temporary file of 64 MiB is written to it.

    Raises:
        OSError: the folder is missing, or cannot be written to.
    """
    free = shutil.disk_usage(folder).free
    line = f"disk of {folder.resolve()}: {free / GIB:.1f} GiB free"
    if free < 4 * DISK_BYTES:
        return f"{line}; too little to measure how fast it is written to"
    block = os.urandom(BLOCK_BYTES)
    start = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(DISK_BYTES // BLOCK_BYTES):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return f"{line}, {DISK_BYTES / 1e6 / (time.perf_counter() - start):.0f} MB/s written"

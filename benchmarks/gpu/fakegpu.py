"""The project's CUDA path on CPU tensors: Triton compiles for an H100 and launches into a driver that does nothing.

Importing it sets both up, so it comes before Triton and the project. Results are meaningless; launches, the host's time
and the compiled code are those of a GPU. Needs Linux, gcc, torch and triton (one that comes without CUDA will do).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
FOLDER = Path(tempfile.gettempdir()) / "fakecuda"


def _driver_library() -> ctypes.CDLL:
    """``fakecuda.c`` compiled and loaded in libcuda's place."""
    library = FOLDER / "libcuda.so.1"
    if not library.exists() or library.stat().st_mtime < (HERE / "fakecuda.c").stat().st_mtime:
        FOLDER.mkdir(exist_ok=True)
        command = ["gcc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, HERE / "fakecuda.c"]
        subprocess.run(command, check=True)
    os.environ["TRITON_LIBCUDA_PATH"] = str(FOLDER)
    os.environ["LD_LIBRARY_PATH"] = f"{FOLDER}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    os.environ["TRITON_CACHE_DIR"] = str(FOLDER / "cache")
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


sys.path.insert(0, str(HERE.parents[1]))
library = _driver_library()
library.count_launches.restype = ctypes.c_uint64

import triton  # noqa: E402
from triton.backends.nvidia import driver  # noqa: E402


class Driver(driver.CudaDriver):
    """Triton's driver of one device."""

    capability = (9, 0)

    def __init__(self) -> None:
        self.utils, self.launcher_cls = driver.CudaUtils(), driver.CudaLauncher
        self.get_device_capability = lambda device=0: self.capability
        self.get_current_device = self.get_current_stream = lambda device=0: 0
        self.set_current_device = lambda device: None


class Passed(dict):
    """The results of self-checks that have all passed."""

    def __contains__(self, variant: object) -> bool:
        return True

    def __getitem__(self, variant: object) -> None:
        return None


def triton_launches() -> int:
    """Kernels that Triton has launched so far."""
    return library.count_launches()


def use_cuda_path() -> None:
    """Take the branches of CUDA on CPU tensors, those of many programs: 12 heads and 16,384 tokens need no splits."""
    from fairseq_poolingformer.attention import band_attention, modules
    from fairseq_poolingformer.attention.backends import sdpa, self_check
    from fairseq_poolingformer.attention.backends.triton import arguments, backend

    triton.runtime.driver.set_active(Driver())
    why_not_on = backend._why_not_on
    for owner, name, value in (
        (arguments, "PROGRAMS", 1),
        (backend, "_why_not_on", lambda device: why_not_on(device) and None),  # at its cost
        (self_check, "_failures", Passed()),
        # looked up at each call, as on a GPU
        (backend, "self_check", lambda call: self_check.failure(backend.run, call)),
        (sdpa, "takes", lambda x: True),
        (modules.TwoLevelAttention, "_operator", lambda layer, level, *x, **y: band_attention(*x, **y)),
    ):
        patch.object(owner, name, value).start()  # which refuses names that are gone


use_cuda_path()

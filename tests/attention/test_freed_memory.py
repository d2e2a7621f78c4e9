"""Freed memory, seen by the kernel, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 2**20
# resident memory after 256 MiB were written and freed, above what it was before
PROGRAM = """
import ctypes, os, resource, sys
sys.path.insert(0, {folder!r})
from freed_memory import keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

print(keep_freed_memory())
before = resident()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
block = libc.malloc(ctypes.c_size_t({size}))
ctypes.memset(block, 1, {size})
libc.free(block)
print(resident() - before)
"""


def kept(**environment: str) -> tuple[bool, int]:
    """The result of keep_freed_memory, and the bytes that stay after 256 MiB are freed."""
    folder = str(ROOT / "fairseq_poolingformer" / "attention")  # the module alone, without torch
    program = PROGRAM.format(folder=folder, size=256 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    answer, size = done.stdout.split()
    return answer == "True", int(size)


@pytest.fixture(autouse=True)
def plain_glibc(monkeypatch):
    if not sys.platform.startswith("linux") or os.confstr("CS_GNU_LIBC_VERSION") is None:
        pytest.skip("the C library is not glibc")
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)


def test_freed_memory_stays_with_the_process():
    answer, size = kept()
    assert answer
    assert size > 250 * MIB


@pytest.mark.parametrize("setting", ["MALLOC_PERTURB_=0", "GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072"])
def test_the_users_own_settings_are_obeyed(setting):
    name, value = setting.split("=", 1)
    answer, size = kept(**{name: value})
    assert not answer
    assert size < 50 * MIB

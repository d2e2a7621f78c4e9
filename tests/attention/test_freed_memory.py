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


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.confstr("CS_GNU_LIBC_VERSION") is None,
    reason="the C library is not glibc",
)
def test_freed_memory_stays_with_the_process():
    folder = str(ROOT / "fairseq_poolingformer" / "attention")  # the module alone, without torch
    program = PROGRAM.format(folder=folder, size=256 * MIB)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    answer, size = done.stdout.split()
    assert answer == "True"
    assert int(size) > 250 * MIB

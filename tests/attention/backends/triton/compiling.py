"""The Triton kernels compiled for a GPU that need not be here: launches of real calls that stop at the binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import triton

from fairseq_poolingformer.attention.backends.triton import backward as backward_kernels
from fairseq_poolingformer.attention.backends.triton import forward as forward_kernels
from fairseq_poolingformer.attention.backends.triton import pooling as pooling_kernels

KERNELS = (
    forward_kernels.forward,
    forward_kernels.combine,
    backward_kernels.backward_queries,
    backward_kernels.backward_keys,
    pooling_kernels.forward,
    pooling_kernels.backward_weights,
    pooling_kernels.backward_tokens,
)


class Driver:
    """A driver that answers what Triton asks before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", self.capability, 32)


class Resources(NamedTuple):
    """The resources of a kernel: bytes of shared memory of a program, registers and spilled bytes of a thread."""

    shared: int
    registers: int
    spilled: int


@contextmanager
def compiled_for(capability: int) -> Iterator[list[tuple[str, Any]]]:
    """Launches compile for a compute capability (90 for 9.0) and launch nothing.

    Yields:
        The list that launches add to: (name, compiled kernel), where that is a new one.
    """
    compiled: list[tuple[str, Any]] = []

    def launcher(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
        def compile_for(*values: Any, **options: Any) -> None:
            known = len(kernel.device_caches[0][0])
            binary = kernel.warmup(*values, grid=grid, **options)
            if len(kernel.device_caches[0][0]) > known:
                compiled.append((kernel.__name__, binary))

        return compile_for

    with ExitStack() as stack, tempfile.TemporaryDirectory() as cache:
        stack.enter_context(patch.dict("os.environ", TRITON_CACHE_DIR=cache))
        stack.enter_context(patch.object(triton.runtime.driver, "_active", Driver(capability)))
        stack.enter_context(patch.object(triton.JITFunction, "__getitem__", launcher))
        for kernel in KERNELS:
            caches = kernel.device_caches.copy()
            caches.clear()
            stack.enter_context(patch.object(kernel, "device_caches", caches))
        yield compiled


def resources(binary: Any) -> Resources:
    """The resources of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, spilled = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return Resources(binary.metadata.shared, registers, spilled)

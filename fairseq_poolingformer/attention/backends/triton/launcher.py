"""Launches of compiled kernels without Triton's dispatch, which takes the host several times as long as a launch.

Triton looks up the compiled kernel of a launch by what it makes of each argument. Here numbers are bound once, and all
launches of a geometry have tensors of the same dtypes, so that only alignment, and which are None, tell variants apart.
Hooks of launches are called as by Triton; instrumentation that compiles kernels anew comes before a variant's first.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from triton.compiler import CompiledKernel

from fairseq_poolingformer.attention.backends.triton.arguments import TileShape

ALIGNMENT = 16  # bytes; Triton compiles again for tensors that do not begin at a multiple


class Launch:
    """A kernel with its grid and the arguments behind its tensors, all given by place; of one device and dtype."""

    def __init__(self, kernel: Any, grid: tuple[int, ...], shape: TileShape, *numbers: Any) -> None:
        self.kernel, self.grid, self.numbers, self.is_empty = kernel, grid, numbers, 0 in grid
        self.options = {"num_warps": shape.num_warps, "num_stages": shape.num_stages, "enable_fp_fusion": True}
        self.compiled: dict[Any, Any] = {}  # by variant

    def __call__(self, *tensors: Tensor | tuple[Any, ...] | None) -> None:
        """Run the kernel, unless its grid is empty; tuples have tensors, which Triton must look at."""
        if self.is_empty:
            return
        variant = None
        if not isinstance(tensors[-1], tuple):
            variant = tuple([x if x is None else x.data_ptr() % ALIGNMENT for x in tensors])  # type: ignore
            run = self.compiled.get(variant)
            if run is not None:
                run(*tensors, *self.numbers)
                return
        compiled = self.kernel[self.grid](*tensors, *self.numbers, **self.options)
        if variant is not None and isinstance(compiled, CompiledKernel):  # not of tools that run kernels themselves
            self.compiled[variant] = compiled[(*self.grid, 1, 1)[:3]]

"""Launches of compiled kernels without Triton's dispatch, which takes the host several times as long as a launch.

Triton looks up the compiled kernel of a launch by what it makes of each argument. Here the same is looked up once for
all arguments: constants and strides by value, other integers by their width, tensors by dtype and alignment.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.compiler import CompiledKernel

from fairseq_poolingformer.attention.backends.triton.arguments import TileShape

ALIGNMENT = 16  # bytes; Triton compiles again for tensors that do not begin at a multiple
_compiled: dict[Any, Any] = {}  # compiled kernels by variant
_widths: dict[int, tuple[bool, ...]] = {}  # by kernel, all of which live as long as their modules


def launch(kernel: Any, grid: tuple[int, ...], shape: TileShape, *arguments: Any) -> None:
    """Run a kernel, of which all arguments are given by place, unless its grid is empty."""
    if 0 in grid:
        return
    variant = variant_of(kernel, shape, arguments)
    compiled = _compiled.get(variant)
    if compiled is not None:
        compiled[(*grid, 1, 1)[:3]](*arguments)
        return
    options = {"num_warps": shape.num_warps, "num_stages": shape.num_stages, "enable_fp_fusion": True}
    compiled = kernel[grid](*arguments, **options)
    if variant is not None and isinstance(compiled, CompiledKernel):  # not of tools that run kernels themselves
        _compiled[variant] = compiled


def variant_of(kernel: Any, shape: TileShape, arguments: tuple[Any, ...]) -> Any:
    """Equal for launches of one compiled kernel; None where Triton must look it up, or interprets it."""
    if not isinstance(kernel, triton.JITFunction):
        return None
    # the type alone, and id(): isinstance() of tensors and the hash of a JITFunction run Python
    variant: list[Any] = [id(kernel), shape.num_warps, shape.num_stages, arguments[0].device]
    for argument, by_width in zip(arguments, _by_width(kernel), strict=True):
        kind = type(argument)
        if kind is int:
            variant.append(-(2**31) <= argument < 2**31 if by_width else argument)
        elif argument is None or kind is bool:
            variant.append(argument)
        elif kind is float:  # 32 bits wide, whatever their value
            continue
        elif isinstance(argument, tuple):
            if argument.count(None) < len(argument):
                return None
        else:
            variant += argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    return tuple(variant)


def _by_width(kernel: Any) -> tuple[bool, ...]:
    """Of which parameters the kernel is compiled for any value of 32 or of 64 bits."""
    if id(kernel) not in _widths:
        _widths[id(kernel)] = tuple(parameter.do_not_specialize for parameter in kernel.params)
    return _widths[id(kernel)]

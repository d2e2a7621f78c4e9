"""Tiles of the Triton kernels, tried one after the other on the GPU at hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from fairseq_poolingformer.attention.backends.triton import arguments, backend
from fairseq_poolingformer.attention.backends.triton.arguments import KernelTiles, TileShape
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.doctor.timing import POOLED_WINDOW, POOLING, WINDOW
from fairseq_poolingformer.patches.patching import set_within

SIZES = {4: (16, 32, 64), 2: (32, 64, 128)}  # queries and keys of tiles, by bytes of a number
WARPS, STAGES = (4, 8), (2, 3)
HEADS, RUNS = 16, 10
TOLERANCE = 0.02  # of the largest number
Levels = list[tuple[list[Tensor], dict[str, Any]]]


def levels(device: str, dtype: torch.dtype, head_dim: int, length: int, heads: int = HEADS) -> Levels:
    """Queries, keys and values of both levels in fairseq's layout, and the windows over them."""
    torch.manual_seed(0)
    found: Levels = []
    for window, pooling in ((WINDOW, None), (POOLED_WINDOW, POOLING)):
        keys = length if pooling is None else pooling.num_pools(length)
        shapes = [(n, 1, heads, head_dim) for n in (length, keys, keys)]
        tensors = [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]
        tensors = [x.permute(1, 2, 0, 3).requires_grad_() for x in tensors]
        found.append((tensors, {"window": window, "pooling": pooling}))
    return found


def run(levels: Levels) -> list[Tensor]:
    """Both levels forward and backward: outputs and gradients."""
    results = []
    for tensors, windows in levels:
        out = backend.run(Call.of(*tensors, **windows))
        results += [out, *torch.autograd.grad(out, tensors, torch.ones_like(out))]
    return results


def shapes(queries: Sequence[int], keys: Sequence[int]) -> Iterator[TileShape]:
    """The tiles to try."""
    yield from map(TileShape._make, itertools.product(queries, keys, WARPS, STAGES))


def present(device: str, dtype: torch.dtype, head_dim: int) -> KernelTiles:
    """The tiles that a GPU has now."""
    gpu = torch.device(device)
    of_gpu = arguments.capability_of(gpu), head_dim, dtype.itemsize, False, arguments.name_of(gpu)
    return KernelTiles(*(arguments.tile_shape(kernel, *of_gpu) for kernel in KernelTiles._fields))


def tiled(shape: TileShape):
    """Let all kernels have this tile."""
    return set_within(arguments, "tile_shape", lambda *_: shape)


def does_not_compile(error: Exception) -> bool:
    """Whether an error says that a tile is none for this GPU: other errors end the command."""
    return isinstance(error, OutOfResources | CompilationError) or "PassManager" in str(error)


def tried(device: str, dtype: torch.dtype, head_dim: int, length: int) -> Iterator[tuple[TileShape, dict | str]]:
    """Time tiles, the present ones first.

    Yields:
        A tile, and the microseconds of each kernel in both levels, or why the tile is not to be chosen.

    Raises:
        ValueError: torch's profiler shows no times here.
    """
    data, sizes = levels(device, dtype, head_dim, length), SIZES[dtype.itemsize]
    expected = run(data)
    for shape in dict.fromkeys([*present(device, dtype, head_dim), *shapes(sizes, sizes)]):
        yield shape, time_kernels(data, shape, expected)


def time_kernels(levels: Levels, shape: TileShape, expected: list[Tensor]) -> dict[str, float] | str:
    """Microseconds of each kernel in both levels with one tile, or why it is not to be chosen."""
    with tiled(shape):
        try:
            results = run(levels)
        except (OutOfResources, CompilationError, RuntimeError) as error:
            if not does_not_compile(error):
                raise
            return f"does not compile or fit: {str(error).splitlines()[0][:60]}"
        for actual, right in zip(results, expected, strict=True):
            if not (actual - right).abs().max() <= TOLERANCE * right.abs().max():
                return "computes something else"
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            for _ in range(RUNS):
                run(levels)
            torch.cuda.synchronize()
    times = dict.fromkeys(KernelTiles._fields, 0.0)
    for event in profiled.events():
        if event.device_type == DeviceType.CUDA and event.name in times:
            times[event.name] += event.device_time / RUNS
    if not all(times.values()):
        raise ValueError(f"torch's profiler shows no time of {', '.join(k for k, v in times.items() if not v)} here")
    return times


def best(times: dict[TileShape, dict[str, float]]) -> KernelTiles:
    """The fastest tile of each kernel."""
    return KernelTiles(*(min(times, key=lambda shape: times[shape][kernel]) for kernel in KernelTiles._fields))


def microseconds(tiles: KernelTiles, times: dict[TileShape, dict[str, float]]) -> float:
    """The time of all kernels with these tiles."""
    return sum(times[getattr(tiles, kernel)][kernel] for kernel in KernelTiles._fields)

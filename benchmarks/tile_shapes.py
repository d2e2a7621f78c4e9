"""Tiles of the Triton kernels, tried one after the other: their times on the GPU at hand, or their needs without one.

    python benchmarks/tile_shapes.py --device cuda [--dtype bfloat16] [--head-dim 64]
    python benchmarks/tile_shapes.py --device cpu --capability 90 [--queries 64 128] [--keys 64]

On a GPU each tile that compiles and fits runs level one (w1 128) and level two (w2 512, ξ 4), forward and backward; the
table has the microseconds of each kernel in both, by torch's profiler, and the last line is the row that belongs into
TILE_SHAPES of fairseq_poolingformer/attention/backends/triton/arguments.py. A tile whose results are not those of the
present one is not chosen. Without a GPU the kernels are only compiled, for the compute capability that is asked for;
the table then has their shared memory, registers and spilled bytes, and which do not fit. A tile's sizes, warps and
stages are flags, so that a part of the table can be made at a time.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from unittest.mock import patch

import torch
import triton
from attention import POOLED_WINDOW, POOLING, WINDOW
from compiling import Resources, compiled_for, resources
from measure import machine
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from fairseq_poolingformer.attention.backends.triton import arguments, backend
from fairseq_poolingformer.attention.backends.triton.arguments import KernelTiles, TileShape
from fairseq_poolingformer.attention.call import Call

SIZES = {"float32": (16, 32, 64), "bfloat16": (32, 64, 128), "float16": (32, 64, 128)}
SHARED = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}  # KiB a program may have
RUNS = 10
TOLERANCE = 0.02  # of the largest number


def inputs(args: argparse.Namespace, device: str) -> list[tuple[list[Tensor], dict]]:
    """Queries, keys and values of both levels, and the windows over them."""
    torch.manual_seed(0)
    levels = []
    for window, pooling in ((WINDOW, None), (POOLED_WINDOW, POOLING)):
        keys = args.length if pooling is None else pooling.num_pools(args.length)
        shapes = [(length, 1, args.heads, args.head_dim) for length in (args.length, keys, keys)]
        tensors = [torch.randn(shape, device=device, dtype=getattr(torch, args.dtype)) for shape in shapes]
        tensors = [x.permute(1, 2, 0, 3).requires_grad_() for x in tensors]
        levels.append((tensors, {"window": window, "pooling": pooling}))
    return levels


def run(levels: list[tuple[list[Tensor], dict]]) -> list[Tensor]:
    """Both levels forward and backward: outputs and gradients."""
    results = []
    for tensors, windows in levels:
        out = backend.run(Call.of(*tensors, **windows))
        results += [out, *torch.autograd.grad(out, tensors, torch.ones_like(out))]
    return results


def shapes(args: argparse.Namespace) -> Iterator[TileShape]:
    """The tiles to try, the present one of the forward kernel first."""
    yield from dict.fromkeys(
        [
            present(args).forward,
            *map(TileShape._make, itertools.product(args.queries, args.keys, args.warps, args.stages)),
        ]
    )


def present(args: argparse.Namespace) -> KernelTiles:
    """The tiles in the source."""
    itemsize = getattr(torch, args.dtype).itemsize
    chosen = partial(arguments.tile_shape, capability=args.capability, head_dim=args.head_dim, itemsize=itemsize)
    return KernelTiles(*(chosen(kernel, with_positions=False) for kernel in KernelTiles._fields))


def tiled(shape: TileShape):
    """Let all kernels have this tile."""
    return patch.object(arguments, "tile_shape", lambda *_: shape)


def does_not_compile(error: Exception) -> bool:
    """Whether an error says that a tile is none for this GPU: other errors end the command."""
    return isinstance(error, OutOfResources | CompilationError) or "PassManager" in str(error)


def time_kernels(levels: list, shape: TileShape, expected: list[Tensor]) -> dict[str, float] | str:
    """Microseconds of each kernel in both levels, or why the tile is not to be chosen."""
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
        raise SystemExit(f"torch's profiler shows no time of {', '.join(k for k, v in times.items() if not v)} here")
    return times


def measure_on_gpu(args: argparse.Namespace) -> None:
    """Print the table of times, and the row that belongs into the source."""
    levels, now = inputs(args, "cuda"), present(args)
    expected = run(levels)
    print(f"{'queries keys warps stages':<28}" + "".join(f"{kernel + ' µs':>22}" for kernel in now._fields))
    times = {}
    for shape in dict.fromkeys([*now, *shapes(args)]):
        found = time_kernels(levels, shape, expected)
        if isinstance(found, dict):
            times[shape] = found
            found = "".join(f"{microseconds:>22.1f}" for microseconds in found.values())
        print(f"{'{:>7} {:>4} {:>5} {:>6}'.format(*shape):<28}{found}", flush=True)
    best = KernelTiles(*(min(times, key=lambda shape: times[shape][kernel]) for kernel in now._fields))
    spent = [sum(times[getattr(tiles, kernel)][kernel] for kernel in now._fields) for tiles in (now, best)]
    print(f"\npresent tiles {spent[0]:.1f} µs, best tiles {spent[1]:.1f} µs, {spent[0] / spent[1]:.2f} × faster")
    size = getattr(torch, args.dtype).itemsize
    print(f"row of TILE_SHAPES[{args.capability}, {size}]: ({args.head_dim}, {best})")


def compile_only(args: argparse.Namespace) -> None:
    """Print the table of needs."""
    if args.capability not in SHARED:
        raise SystemExit(f"--capability must be one of {', '.join(map(str, SHARED))}, got {args.capability}")
    limit = SHARED[args.capability]
    print(f"compute capability {args.capability / 10}: {limit} KiB of shared memory, 255 registers; nothing is run")
    heads = [f"{kernel}: KiB, registers, spilled" for kernel in KernelTiles._fields]
    print(f"{'queries keys warps stages':<28}" + "".join(f"{head:>46}" for head in heads))
    for shape in shapes(args):
        needs = dict.fromkeys(KernelTiles._fields, Resources(0, 0, 0))
        try:
            with tiled(shape), compiled_for(args.capability) as compiled:
                run(inputs(args, "cpu"))
                for name, binary in compiled:
                    if name in needs:
                        needs[name] = Resources(*map(max, needs[name], resources(binary)))
            cells = [f"{n.shared / 1024:.0f}, {n.registers}, {n.spilled}" for n in needs.values()]
            too_much = [" too much" if n.shared > limit * 1024 else "" for n in needs.values()]
            row = "".join(f"{cell + end:>46}" for cell, end in zip(cells, too_much, strict=True))
        except (OutOfResources, CompilationError, RuntimeError) as error:
            if not does_not_compile(error):
                raise
            row = f"   does not compile: {str(error).splitlines()[0][:60]}"
        print(f"{'{:>7} {:>4} {:>5} {:>6}'.format(*shape):<28}{row}", flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: compile only (default: %(default)s)")
    add("--capability", type=int, default=90, help="on the CPU: compile for this compute capability (default: 90)")
    add("--dtype", default="bfloat16", choices=tuple(SIZES), help="(default: %(default)s)")
    add("--head-dim", type=int, default=64, help="(default: %(default)s)")
    add("--heads", type=int, default=16, help="(default: %(default)s)")
    add("--length", type=int, default=16384, help="tokens (default: %(default)s)")
    for name, of in (("--queries", "queries"), ("--keys", "keys")):
        add(name, type=int, nargs="+", help=f"{of} of a tile, powers of two from 16 (default: three for the dtype)")
    add("--warps", type=int, nargs="+", default=[4, 8], help="of a program (default: 4 8)")
    add("--stages", type=int, nargs="+", default=[2, 3], help="tiles loaded ahead (default: 2 3)")
    return result


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line, and refuse what cannot be measured here."""
    command = parser()
    args = command.parse_args(arguments)
    args.queries, args.keys = args.queries or SIZES[args.dtype], args.keys or SIZES[args.dtype]
    if any(size < 16 or size & (size - 1) for size in (*args.queries, *args.keys)):
        command.error("--queries and --keys must be powers of two from 16")
    if backend.triton is None or triton.knobs.runtime.interpret:
        command.error("needs Triton, and TRITON_INTERPRET not set")
    if args.device == "cuda":
        if not torch.cuda.is_available():
            command.error("--device cuda: torch finds no GPU here")
        args.capability = arguments.capability_of(torch.device("cuda"))
    args.threads = torch.get_num_threads()
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    args = parse(arguments)
    print(machine(args))
    print(f"{args.length} tokens, {args.heads} heads of {args.head_dim}, {args.dtype}; w1 128, w2 512, κ 5, ξ 4")
    if args.device == "cuda":
        measure_on_gpu(args)
    else:
        compile_only(args)


if __name__ == "__main__":
    main()

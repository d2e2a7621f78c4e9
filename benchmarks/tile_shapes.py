"""What tiles of the Triton kernels need on a GPU that need not be here: shared memory, registers, spilled bytes.

    python benchmarks/tile_shapes.py --capability 90 [--queries 64 128] [--keys 64]

The kernels are compiled for the compute capability, and nothing is run; the table says which tiles do not fit. On a
GPU, ``poolingformer doctor --tune`` times tiles and stores the fastest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
import triton
from compiling import Resources, compiled_for, resources
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from fairseq_poolingformer.attention.backends.triton import backend
from fairseq_poolingformer.attention.backends.triton.arguments import KernelTiles
from fairseq_poolingformer.doctor import tuning

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHARED = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}  # KiB a program may have


def compile_only(args: argparse.Namespace) -> None:
    """Print the table of needs."""
    limit, dtype = SHARED[args.capability], DTYPES[args.dtype]
    print(f"compute capability {args.capability / 10}: {limit} KiB of shared memory, 255 registers; nothing is run")
    heads = [f"{kernel}: KiB, registers, spilled" for kernel in KernelTiles._fields]
    print(f"{'queries keys warps stages':<28}" + "".join(f"{head:>46}" for head in heads))
    sizes = tuning.SIZES[dtype.itemsize]
    for shape in tuning.shapes(args.queries or sizes, args.keys or sizes):
        needs = dict.fromkeys(KernelTiles._fields, Resources(0, 0, 0))
        try:
            with tuning.tiled(shape), compiled_for(args.capability) as compiled:
                tuning.run(tuning.levels("cpu", dtype, args.head_dim, args.length))
                for name, binary in compiled:
                    if name in needs:
                        needs[name] = Resources(*map(max, needs[name], resources(binary)))
            cells = [f"{n.shared / 1024:.0f}, {n.registers}, {n.spilled}" for n in needs.values()]
            too_much = [" too much" if n.shared > limit * 1024 else "" for n in needs.values()]
            row = "".join(f"{cell + end:>46}" for cell, end in zip(cells, too_much, strict=True))
        except (OutOfResources, CompilationError, RuntimeError) as error:
            if not tuning.does_not_compile(error):
                raise
            row = f"   does not compile: {str(error).splitlines()[0][:60]}"
        print(f"{'{:>7} {:>4} {:>5} {:>6}'.format(*shape):<28}{row}", flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--capability", type=int, default=90, choices=SHARED, help="compute capability (default: 90, for 9.0)")
    add("--dtype", default="bfloat16", choices=DTYPES, help="(default: %(default)s)")
    add("--head-dim", type=int, default=64, help="(default: %(default)s)")
    add("--length", type=int, default=16384, help="tokens (default: %(default)s)")
    for name in ("queries", "keys"):
        add(f"--{name}", type=int, nargs="+", help="of a tile, powers of two from 16 (default: three for the dtype)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    command = parser()
    args = command.parse_args(arguments)
    if any(size < 16 or size & (size - 1) for size in (*(args.queries or ()), *(args.keys or ()))):
        command.error("--queries and --keys must be powers of two from 16")
    if backend.triton is None or triton.knobs.runtime.interpret:
        command.error("needs Triton, and TRITON_INTERPRET not set")
    print(f"{args.length} tokens, {tuning.HEADS} heads of {args.head_dim}, {args.dtype}; w1 128, w2 512, κ 5, ξ 4")
    compile_only(args)


if __name__ == "__main__":
    main()

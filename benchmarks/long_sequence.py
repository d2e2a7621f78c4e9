"""A million tokens through both levels on a CPU, forward and backward, and proof that the result is right.

    python benchmarks/long_sequence.py [--length 1048576] [--heads 2] [--dtype float32]

The operators alone, head dim 64: level one's output Y is level two's query, and pooled with LDConv its keys and values.
Without global tokens what an output and a gradient depend on is local. So windows at the beginning, in the middle and
at the end of the sequence are computed once more, each from its own slice alone, in float64 by the dense reference;
the numbers are printed only where both agree.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from attention import POOLED_WINDOW, POOLING, WINDOW
from measure import DTYPES, Case, add_arguments, measure, must_agree, parse, print_header, print_table
from torch import Tensor

from fairseq_poolingformer.attention import band_attention, pool_keys

HEAD_DIM = 64
# A gradient depends on outputs that far away, and they on keys as far again.
HALO = 2 * (WINDOW.left + POOLED_WINDOW.left + POOLING.kernel_size + POOLING.stride)
Slices = dict[str, np.ndarray]


def two_levels(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, backend: str | None) -> Tensor:
    """Y + Z, (B, H, T, D), of level one's query, key and value (B, H, T, D) and W_p (κ, H·D)."""
    y = band_attention(query, key, value, window=WINDOW, backend=backend)
    pooled, _ = pool_keys(y, POOLING, kind="ldconv", weight=weight)
    return y + band_attention(y, pooled, pooled, window=POOLED_WINDOW, pooling=POOLING, backend=backend)


def slices(length: int, size: int) -> list[tuple[slice, slice]]:
    """Windows to check, each with the slice that it depends on, which begins where a pool does."""
    starts = sorted({0, max(length // 2 - size, 0), max(length - size, 0)})
    found = []
    for start in starts:
        stop = min(start + size, length)
        first = max(start - HALO, 0) // POOLING.stride * POOLING.stride
        found.append((slice(start, stop), slice(first, min(stop + HALO, length))))
    return found


def sequence(args: argparse.Namespace) -> Callable[[], list[Slices]]:
    """Forward and backward over the whole sequence; gives what is needed to check its windows."""
    torch.manual_seed(0)
    dtype = getattr(torch, args.dtype)
    shape = (1, args.heads, args.length, HEAD_DIM)
    inputs = [torch.randn(shape, dtype=dtype, device=args.device).requires_grad_() for _ in range(3)]
    width = args.heads * HEAD_DIM
    weight = torch.randn(POOLING.kernel_size, width, dtype=dtype, device=args.device).div_(width**0.5).requires_grad_()
    direction = torch.randn(HEAD_DIM, dtype=dtype, device=args.device)

    def run() -> list[Slices]:
        for x in (*inputs, weight):
            x.grad = None
        output = two_levels(*inputs, weight, backend=None)
        output.backward(direction.expand_as(output))
        everything = dict(zip(("query", "key", "value"), inputs, strict=True))
        results = {"output": output, **{f"gradient of {name}": x.grad for name, x in everything.items()}}
        found = []
        for window, around in slices(args.length, args.check_size):
            taken = {name: x[:, :, around] for name, x in everything.items()}
            taken |= {name: x[:, :, window] for name, x in results.items()} | {"weight": weight, "direction": direction}
            found.append({name: x.detach().double().cpu().numpy() for name, x in taken.items()})
        return found

    return run


def check(found: Slices, window: slice, around: slice, tolerance: float) -> None:
    """The reference computes the same from the slice alone.

    Args:
        found: of the slice the inputs, of the window the output and gradients.
        window: tokens to compare.
        around: tokens of the slice.
        tolerance: greatest difference.

    Raises:
        SystemExit: it does not.
    """
    tensors = {name: torch.from_numpy(x) for name, x in found.items()}
    inputs = {name: tensors[name].requires_grad_() for name in ("query", "key", "value")}
    output = two_levels(*inputs.values(), tensors["weight"], backend="reference")
    output.backward(tensors["direction"].expand_as(output))
    inner = slice(window.start - around.start, window.stop - around.start)
    where = f"tokens {window.start} to {window.stop}"
    must_agree(f"{where}: output", tensors["output"], output[:, :, inner], tolerance)
    for name, x in inputs.items():
        must_agree(f"{where}: gradient of {name}", tensors[f"gradient of {name}"], x.grad[:, :, inner], tolerance)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--length", type=int, default=2**20, help="tokens (default: %(default)s)")
    add("--heads", type=int, default=2, help="of dim 64 (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES)
    add("--check-size", type=int, default=256, help="tokens of each window that is checked (default: %(default)s)")
    add_arguments(result, repeats=1, warm_ups=0)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, check, print the table."""
    args = parse(parser(), arguments)
    torch.set_num_threads(args.threads)
    results = measure([Case("level one + level two", partial(sequence, args))], args)
    windows = slices(args.length, args.check_size)
    if results[0].failure is None:
        tolerance = 1e-4 if args.dtype == "float32" else 0.1
        for found, (window, around) in zip(results[0].value, windows, strict=True):
            check(found, window, around, tolerance)
    print_header(
        args, f"{args.length} tokens, {args.heads} heads of dim {HEAD_DIM}, forward + backward, batch 1, {args.dtype}"
    )
    print_table(results, tokens=args.length)
    if results[0].failure is None:
        where = ", ".join(str(window.start) for window, _ in windows)
        print(f"{args.check_size} tokens from each of {where} agree with the reference on their slices alone")


if __name__ == "__main__":
    main()

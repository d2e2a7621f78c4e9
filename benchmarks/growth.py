"""Time and memory of one encoder layer's self-attention against length, forward and backward.

    python benchmarks/growth.py [--lengths 1024 … 32768] [--output growth.json] [--device cpu] [--dtype float32]
    python benchmarks/plot.py growth.json docs/growth

Full attention, Hugging Face's LED, level one alone and Poolingformer, projections included, d 768 and 12 heads. Needs
torch and transformers. A system that has run out of memory is not tried at greater lengths, nor is full attention
above --longest-dense.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attention import DIM, HEADS, LED_WINDOW, POOLED_WINDOW, POOLING, WINDOW, banded, copy_led, led_attention
from measure import (
    DTYPES,
    GIB,
    Case,
    Result,
    add_arguments,
    machine,
    measure,
    must_agree,
    parse,
    print_header,
    print_table,
)
from torch import Tensor, nn

from fairseq_poolingformer.attention import Window


class FullAttention(nn.Module):
    """Every token sees every other, through PyTorch's fused kernel, inside the same projections."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) to (B, T, C)."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (project(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for project in projections)
        return self.out_proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def full(length: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """Full attention and how to call it on (B, T, C)."""
    module = FullAttention()
    return module, module


SYSTEMS = {
    "full attention": full,
    "LED of Hugging Face": partial(led_attention, window=LED_WINDOW),
    "level one": partial(banded, window=WINDOW),
    "Poolingformer": partial(banded, window=WINDOW, pooled_window=POOLED_WINDOW, pooling=POOLING),
}


def layer(args: argparse.Namespace, make: Callable, length: int) -> Callable[[], None]:
    """Forward and backward of a system's layer on one document."""
    torch.manual_seed(0)
    module, call = make(length)
    module.to(args.device, getattr(torch, args.dtype))
    x = torch.randn(1, length, DIM, device=args.device, dtype=getattr(torch, args.dtype), requires_grad=True)

    def run() -> None:
        module.zero_grad()
        x.grad = None
        call(x).sum().backward()

    return run


@torch.no_grad()
def check(args: argparse.Namespace) -> None:
    """Each system gives what the reference gives with its weights, in float32 over 1,024 tokens."""
    length = 2 * LED_WINDOW
    torch.manual_seed(0)
    x = torch.randn(1, length, DIM, device=args.device)
    for name in args.systems:
        module, call = SYSTEMS[name](length)
        module.to(args.device)
        if name == "full attention":
            reference, expected = banded(length, window=Window.unlimited(), backend="reference")
            reference.load_state_dict(module.state_dict())
        elif name == "LED of Hugging Face":
            settings = {"window": Window(LED_WINDOW), "separate_global_projections": True}
            reference, expected = banded(length, **settings, backend="reference")
            copy_led(module, reference)
        else:
            reference, expected = banded(length, **SYSTEMS[name].keywords, backend="reference")
            reference.load_state_dict(module.state_dict())
        reference.to(args.device)
        must_agree(name, call(x), expected(x), 1e-4 if args.device == "cpu" else 1e-3)


def feasible(args: argparse.Namespace, name: str, length: int, failed: set[str]) -> bool:
    """Whether to try a system at a length; Hugging Face's layer takes whole windows only."""
    if name == "LED of Hugging Face" and length % (2 * LED_WINDOW):
        return False
    return name not in failed and not (name == "full attention" and length > args.longest_dense)


def measure_lengths(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every system at every length, with a table for each; returns the rows of the JSON file."""
    rows, failed = [], set()
    for length in sorted(args.lengths):
        names = [name for name in args.systems if feasible(args, name, length, failed)]
        results = measure([Case(name, partial(layer, args, SYSTEMS[name], length)) for name in names], args)
        print(f"\n{length} tokens", end="")
        print_table(results, tokens=length)
        failed.update(result.name for result in results if result.failure is not None)
        rows += [row(result, length) for result in results]
    return rows


def row(result: Result, length: int) -> dict[str, Any]:
    """A result as JSON has it: seconds, and the bytes beyond the layer and its input."""
    if result.failure is not None:
        return {"system": result.name, "length": length, "failure": result.failure}
    return {
        "system": result.name,
        "length": length,
        "seconds": result.median,
        "least": min(result.seconds),
        "greatest": max(result.seconds),
        "bytes": result.peak - result.baseline,
    }


def print_growth(rows: Sequence[dict[str, Any]]) -> None:
    """The factor from a quarter of each system's greatest length to that length; linear growth is 4."""
    found = {(row["system"], row["length"]): row for row in rows if "failure" not in row}
    print(f"\n{'growth, linear = 4':<24}{'from':>8}{'to':>8}{'time':>8}{'memory':>8}")
    for system in dict.fromkeys(row["system"] for row in rows):
        lengths = [length for name, length in found if name == system and (system, length // 4) in found]
        if not lengths or max(lengths) % 4:
            continue
        short, long = found[system, max(lengths) // 4], found[system, max(lengths)]
        factors = "".join(f"{long[key] / max(short[key], 1e-9):8.2f}" for key in ("seconds", "bytes"))
        print(f"{system:<24}{short['length']:>8}{long['length']:>8}{factors}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    lengths = [1024 * 2**n for n in range(6)]
    add("--lengths", type=int, nargs="+", default=lengths, help="tokens (default: 1024, 2048 … 32768)")
    add("--systems", nargs="+", default=list(SYSTEMS), choices=tuple(SYSTEMS), help="(default: all)")
    add("--longest-dense", type=int, default=16384, help="no full attention above this (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES)
    add("--output", type=Path, metavar="FILE", help="write the numbers as JSON, for plot.py")
    add_arguments(result, repeats=3)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the file."""
    args = parse(parser(), arguments)
    torch.set_num_threads(args.threads)
    check(args)
    what = f"self-attention of an encoder layer, d {DIM}, {HEADS} heads, forward + backward, batch 1, {args.dtype}"
    print_header(args, what)
    rows = measure_lengths(args)
    print_growth(rows)
    if args.output is not None:
        limit = args.memory_limit and args.memory_limit * GIB
        contents = {"machine": machine(args), "what": what, "device": args.device, "memory_limit": limit, "rows": rows}
        args.output.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

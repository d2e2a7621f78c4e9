"""One document over processes: memory, seconds and bytes of an encoder's step.

    python benchmarks/context_parallel.py --tokens 65536 --cases 1x1 2x1 4x1 1x2

A case is PROCESSESxTHREADS. Every layer is recomputed in the backward pass. The processes exchange through gloo, and
give freed memory back, so that memory is what tensors take. The sum of squares of all outputs, and that of the
gradients of all parameters, must be the same in all cases of a length.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from measure import DTYPES, GIB, peak, reset_peak
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import GroupRanks, Shard

BLOCK = 256  # tokens of the input that one seed gives, so that every division has the same input
SIZES = {"base": (768, 12, 6), "large": (1024, 16, 12), "tiny": (32, 2, 4)}  # channels, heads, layers


@dataclass(frozen=True)
class Case:
    """How a document is divided."""

    processes: int
    threads: int

    @classmethod
    def of(cls, text: str) -> Case:
        """From ``2x1``."""
        processes, _, threads = text.partition("x")
        try:
            return cls(int(processes), int(threads))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not such as 2x1") from None

    def __str__(self) -> str:
        return f"{self.processes}x{self.threads}"


class CountedRanks(GroupRanks):
    """Ranks that count the bytes that they send."""

    sent = 0

    def swap(self, sent: list[Tensor], sizes: list[int]) -> list[Tensor]:
        self.sent += sum(len(x) for x in sent)
        return super().swap(sent, sizes)


class Layer(nn.Module):
    """An encoder layer; the second half of an encoder's layers have two levels."""

    def __init__(self, channels: int, heads: int, two_levels: bool) -> None:
        super().__init__()
        level_two = {"pooled_window": Window(512), "pooling": Pooling(5, 4)} if two_levels else {}
        self.attention = TwoLevelAttention(channels, heads, window=Window(128), **level_two)
        self.first, self.second = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.feed = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: Tensor, shard: Shard) -> Tensor:
        x = x + self.attention(self.first(x), shard=shard)
        return x + self.feed(self.second(x))


class Encoder(nn.Module):
    """The layers over random numbers, which a parameter multiplies for a gradient to go through all of them."""

    def __init__(self, channels: int, heads: int, layers: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.layers = nn.ModuleList(Layer(channels, heads, number >= layers // 2) for number in range(layers))

    def forward(self, shard: Shard) -> Tensor:
        """The sum of squares of the outputs."""
        x = self.scale * numbers(shard.part, *self.scale.shape, self.scale.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, shard, use_reentrant=False)
        return x.float().square().sum((0, 2)).double().sum()


def set_malloc() -> None:
    """Have glibc map tensors one by one: the holes between freed ones would count as memory."""
    threshold = -3  # M_MMAP_THRESHOLD
    ctypes.CDLL(None).mallopt(threshold, 2**16)


def numbers(part: range, channels: int, dtype: torch.dtype) -> Tensor:
    """(1, T, C) random input of some tokens, the same in every division."""
    found = torch.empty(1, len(part), channels, dtype=dtype)
    for block in range(part.start // BLOCK, -(-part.stop // BLOCK)):
        x = torch.randn(BLOCK, channels, generator=torch.Generator().manual_seed(block))
        start, stop = max(part.start, block * BLOCK), min(part.stop, (block + 1) * BLOCK)
        found[0, start - part.start : stop - part.start] = x[start - block * BLOCK : stop - block * BLOCK]
    return found


def work(rank: int, case: Case, tokens: int, args: argparse.Namespace, folder: str, results) -> None:
    """One process: builds, then does a step."""
    torch.set_num_threads(case.threads)
    set_malloc()
    distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=case.processes)
    ranks, (channels, heads, layers) = CountedRanks(), SIZES[args.size]
    dtype = getattr(torch, args.dtype)
    torch.manual_seed(0)
    encoder = Encoder(channels, heads, args.layers or layers).to(dtype)
    part = range(tokens * rank // case.processes, tokens * (rank + 1) // case.processes)
    mask = torch.arange(part.start, part.stop)[None] == 0
    shard = Shard.of(1, len(part), global_mask=mask, ranks=ranks)
    ranks.sent, baseline = 0, reset_peak("cpu")
    for _ in range(args.repeats):
        distributed.barrier()
        ranks.sent, start = 0, time.perf_counter()
        encoder.zero_grad()
        with torch.set_grad_enabled(not args.inference):
            loss = encoder(shard)
        if not args.inference:
            loss.backward()
        seconds = time.perf_counter() - start
    gradients = [parameter.grad.double() for parameter in encoder.parameters() if parameter.grad is not None]
    if case.processes > 1:
        for gradient in gradients:
            distributed.all_reduce(gradient)
    grad = sum(float(gradient.square().sum()) for gradient in gradients) / case.processes
    results.put((rank, seconds, peak("cpu") - baseline, ranks.sent, loss.item(), grad))
    distributed.barrier()
    distributed.destroy_process_group()


def measured(case: Case, tokens: int, args: argparse.Namespace) -> tuple[float, ...]:
    """Seconds, the most bytes of memory and bytes sent of a process, and the sums of squares."""
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (case, tokens, args, folder, results), case.processes)
    _, *columns = zip(*(results.get() for _ in range(case.processes)), strict=True)
    *most, loss, grad = columns
    return *map(max, most), sum(loss), sum(grad)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--tokens", type=int, nargs="+", default=[65536], help="of the document (default: 65536)")
    cases = ["1x1", "2x1", "4x1", "1x2"]
    add("--cases", type=Case.of, nargs="+", default=[Case.of(text) for text in cases], metavar="PxT")
    add("--size", default="base", choices=SIZES, help="of BART's encoder (default: base)")
    add("--layers", type=int, help="of the encoder, half of them with two levels (default: those of the size)")
    add("--dtype", default="float32", choices=DTYPES)
    add("--inference", action="store_true", help="the forward pass alone, without gradients")
    add("--repeats", type=int, default=2, help="steps, of which the last one is timed (default: 2)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, check, print the table."""
    args = parser().parse_args(arguments)
    heads = ("case", "tokens", "s", "µs a token", "GiB a process", "MiB sent a process")
    print("  ".join(f"{head:>18}" for head in heads))
    for tokens in args.tokens:
        expected: tuple[float, ...] | None = None
        for case in args.cases:
            seconds, memory, sent, *sums = measured(case, tokens, args)
            numbers_of_row = (seconds, 1e6 * seconds / tokens, memory / GIB, sent / 2**20)
            row = (case, tokens, *(f"{x:.3f}" for x in numbers_of_row))
            print("  ".join(f"{cell!s:>18}" for cell in row), flush=True)
            expected = expected or tuple(sums)
            tolerance = 1e-4 if args.dtype == "float32" else 0.05
            if not all(math.isclose(a, e, rel_tol=tolerance) for a, e in zip(sums, expected, strict=True)):
                sys.exit(f"{case} computes something else: sums of squares {sums}, not {list(expected)}")


if __name__ == "__main__":
    main()

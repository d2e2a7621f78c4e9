"""Attention layers on a GPU: milliseconds by the clock, and replayed from a CUDA graph, which leaves the host out.

    python benchmarks/gpu/layer_times.py [--seconds 200] [--lengths 16384 4096 65536]

One process; each row is printed when it is known, the lengths in their order, FlexAttention last. Nothing is checked
against a reference: the kernels' tests do that. Masks are made once, as models do, with one global token.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import layers
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_poolingformer.attention import Masks, TwoLevelAttention

WINDOW = 256  # of the rows with FlexAttention


class Full(nn.Module):
    """Four projections and attention by ``attend``."""

    def __init__(self, dim: int, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.heads, self.attend = dim // 64, attend
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, masks: Masks) -> Tensor:
        projections = self.q_proj, self.k_proj, self.v_proj
        query, key, value = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in projections)
        return self.out_proj(self.attend(query, key, value).transpose(1, 2).flatten(2))


def by_backend(backend: SDPBackend) -> Callable[..., Tensor]:
    def attend(*tensors: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*tensors)

    return attend


def by_flex(length: int, device: str) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: (q - k).abs() <= WINDOW, None, None, length, length, device=device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda *tensors: compiled(*tensors, block_mask=mask)


class Clock:
    """Milliseconds of a call on a device."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def ms(self, function: Callable[[], object]) -> float:
        """The mean of calls in a row that take 0.15 s, 3 at least."""
        function()
        self.synchronize()
        start = time.perf_counter()
        function()
        self.synchronize()
        calls = max(3, min(50, int(0.15 / max(1e-6, time.perf_counter() - start))))
        start = time.perf_counter()
        for _ in range(calls):
            function()
        self.synchronize()
        return (time.perf_counter() - start) / calls * 1e3

    def replayed_ms(self, function: Callable[[], object]) -> float:
        """Milliseconds of a replayed CUDA graph; NaN on CPUs."""
        if not self.cuda:
            return float("nan")
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            function()
        return self.ms(graph.replay)


def row(clock: Clock, name: str, module: nn.Module, length: int, dim: int, dtype: torch.dtype, device: str) -> None:
    """Print the times of one layer, or the error that ends it."""
    try:
        module = module.to(device, dtype)
        masks = layers.masks_of(length, with_global=not isinstance(module, Full), with_padding=False, device=device)
        x = torch.randn(1, length, dim, device=device, dtype=dtype, requires_grad=True)
        leaves, grad = [x, *module.parameters()], torch.ones_like(x)

        def forward() -> None:
            with torch.no_grad():
                module(x, masks=masks)

        def both() -> None:
            torch.autograd.grad(module(x, masks=masks), leaves, grad, allow_unused=True)

        both()
        if clock.cuda:
            torch.cuda.reset_peak_memory_stats()
        times: list[Any] = [clock.ms(forward), clock.replayed_ms(forward), clock.ms(both), clock.replayed_ms(both)]
        mib = torch.cuda.max_memory_allocated() >> 20 if clock.cuda else 0
        print(f"{length:6d}  {name:32s}" + "".join(f"{x:9.3f}" for x in times) + f"{mib:7d}", flush=True)
    except (RuntimeError, ValueError, TypeError) as error:
        print(f"{length:6d}  {name:32s} {type(error).__name__}: {str(error)[:100]}", flush=True)
    gc.collect()
    if clock.cuda:
        torch.cuda.empty_cache()


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--seconds", type=float, default=200, help="no row begins later")
    result.add_argument("--device", default="cuda")
    result.add_argument("--lengths", type=int, nargs="+", default=[16384, 4096, 65536], help="tokens")
    result.add_argument("--dim", type=int, default=768)
    return result


def main() -> None:
    start, options = time.perf_counter(), parser().parse_args()
    device, dim = options.device, options.dim
    clock, dtype = Clock(device), torch.bfloat16 if device == "cuda" else torch.float32
    print(torch.__version__, torch.cuda.get_device_name() if clock.cuda else "CPU")
    print("tokens  layer                             forward   graph     both    graph    MiB")
    full = {
        "full attention, cuDNN": SDPBackend.CUDNN_ATTENTION,
        "full attention, FlashAttention": SDPBackend.FLASH_ATTENTION,
    }
    for length in options.lengths:
        rows: dict[str, Callable[[], nn.Module]] = {
            name: lambda backend=backend if clock.cuda else SDPBackend.MATH: Full(dim, by_backend(backend))
            for name, backend in full.items()
        }
        for name, kind in layers.LAYERS.items():
            rows[name] = lambda kind=kind: TwoLevelAttention(dim, dim // 64, **kind)
        for name, build in rows.items():
            if time.perf_counter() - start < options.seconds:
                row(clock, name, build(), length, dim, dtype, device)
    for length in options.lengths if clock.cuda else ():
        if time.perf_counter() - start < options.seconds:
            row(clock, "FlexAttention, window", Full(dim, by_flex(length, device)), length, dim, dtype, device)


if __name__ == "__main__":
    main()

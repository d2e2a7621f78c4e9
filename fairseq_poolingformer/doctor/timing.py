"""Times of the two levels and of a product of matrices, for ``poolingformer doctor`` and the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention import BACKENDS, Pooling, Window, band_attention, pool_keys

DIM, HEADS = 768, 12
WINDOW, POOLED_WINDOW, POOLING = Window(128), Window(512), Pooling(5, 4)
LIMIT = {"cpu": (4096, DIM, 1)}  # rows and width of the product whose rate is the limit; products
LIMIT_OF_GPU = (8192, 8192, 20)
PRODUCTS = {"forward": 2, "both": 7}  # of queries × keys × head dim
RUNS, CALLS_ON_GPU = 5, 20  # so many calls in a run that a GPU does not wait for the host after each


def clock(device: str) -> float:
    """Seconds of CPU time of this process on all its threads; elsewhere of the wall, on a GPU once it is idle."""
    if device == "cpu":
        return time.process_time()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def matmul_rate(device: str, dtype: torch.dtype) -> float:
    """Multiply-adds a second in a large product of matrices, the best of five."""
    rows, width, count = LIMIT.get(device, LIMIT_OF_GPU)
    x = torch.randn(rows, width, device=device, dtype=dtype)
    weight = torch.randn(width, width, device=device, dtype=dtype)
    times = []
    for _ in range(6):
        start = clock(device)
        for _ in range(count):
            x @ weight
        times.append(clock(device) - start)
    return count * rows * width * width / min(times[1:])


def level_one(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    """Level one on (B, H, T, D), with further arguments of the operator."""
    return band_attention(query, key, value, window=WINDOW, **arguments)


def level_two(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    """Level two with mean pooling, pooling included."""
    pooled_keys, _ = pool_keys(key, POOLING)
    pooled_values, _ = pool_keys(value, POOLING)
    return band_attention(query, pooled_keys, pooled_values, window=POOLED_WINDOW, pooling=POOLING, **arguments)


KEYS_OF_ONE, KEYS_OF_TWO = 2 * WINDOW.left + 1, 2 * POOLED_WINDOW.left // POOLING.stride + 1  # that a query sees


def step(
    call: Callable[..., Tensor], passes: str, inputs: Sequence[Tensor], parameters: Iterable[Tensor] = ()
) -> Callable[[], None]:
    """A function that calls forward, or with passes "both" forward and backward, with all gradients."""
    if passes == "both":
        inputs = [x.detach().requires_grad_() for x in inputs]
        grad = torch.ones_like(call(*inputs))
    wanted = [*inputs, *parameters]

    def once() -> None:
        if passes == "both":  # not backward(), which would also time the sum of the gradients of all calls
            torch.autograd.grad(call(*inputs), wanted, grad, allow_unused=True)
        else:
            with torch.no_grad():
                call(*inputs)

    return once


@dataclass(frozen=True)
class Time:
    """Time of an operator.

    Attributes:
        operator, backend: their names.
        seconds: of a call, by passes ("forward", "both").
        of_limit: by passes, the time that the multiply-adds alone take at the rate of a product of matrices, over it.
        failures: by passes, why there is no time.
    """

    operator: str
    backend: str
    seconds: dict[str, float] = field(default_factory=dict)
    of_limit: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def times(device: str, dtype: torch.dtype, length: int, rate: float) -> Iterator[Time]:
    """Time both levels with every backend but the dense one, and full attention by PyTorch's.

    Args:
        device: where.
        dtype: of queries, keys and values, for which there are 12 heads of 64, batch 1, laid out as in fairseq.
        length: tokens.
        rate: what :func:`matmul_rate` gives.
    """
    shape = (length, 1, HEADS, DIM // HEADS)
    inputs = [torch.randn(shape, device=device, dtype=dtype).permute(1, 2, 0, 3) for _ in range(3)]
    fast = [name for name in BACKENDS if name not in ("reference", "sdpa")]
    cases = [("level one", level_one, KEYS_OF_ONE, name) for name in fast]
    cases += [("level two", level_two, KEYS_OF_TWO, name) for name in fast]
    cases.append(("full attention", partial(band_attention, window=Window.unlimited()), length, "sdpa"))
    for operator, call, keys, backend in cases:
        found = Time(operator, backend)
        for passes, products in PRODUCTS.items():
            try:
                seconds = seconds_of(step(partial(call, backend=backend), passes, inputs), device)
            except (ValueError, RuntimeError) as error:  # it cannot run the call, or has no memory, or does not compile
                found.failures[passes] = " ".join(str(error).split())[:300]
            else:
                found.seconds[passes] = seconds
                found.of_limit[passes] = products * length * DIM * keys / rate / seconds
        yield found


def seconds_of(once: Callable[[], None], device: str) -> float:
    """Seconds of a call: the median of five runs, after one more; on a GPU each of several calls."""
    calls, runs = 1 if device == "cpu" else CALLS_ON_GPU, []
    for _ in range(RUNS + 1):
        start = clock(device)
        for _ in range(calls):
            once()
        runs.append((clock(device) - start) / calls)
    return statistics.median(runs[1:])

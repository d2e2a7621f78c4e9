"""Launches and time of a Poolingformer layer's parts, by torch's profiler: what a fused pooling kernel could save.

    python benchmarks/launches.py [--length 16384] [--device cuda] [--dtype bfloat16] [--pool-type ldconv]

Counts the kernels that one forward and backward pass of a layer's self-attention launches, and of its parts alone:
level one, pooling (of the vectors that become keys and values), level two on pooled keys. What pooling takes of the
layer's time on the device is the most that a kernel of its own could save; one is worth writing where that share, or
pooling's share of the launches of a layer that waits for the host, is not small. On a CPU the operators of PyTorch are
counted instead, and their CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from attention import DIM, HEADS, POOLED_WINDOW, POOLING, POOLINGFORMER, level_one_with_global_token
from measure import DTYPES, clock, machine
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fairseq_poolingformer.attention import POOL_TYPES, TwoLevelAttention, band_attention, pool_keys
from fairseq_poolingformer.attention.global_tokens import GlobalTokens

RUNS = 5


def parts(args: argparse.Namespace) -> dict[str, tuple[Callable[..., Tensor], list[Tensor]]]:
    """The layer and its parts, and the tensors whose gradients they give."""
    torch.manual_seed(0)
    options = {"device": args.device, "dtype": getattr(torch, args.dtype)}
    layer = TwoLevelAttention(DIM, HEADS, **POOLINGFORMER, pool_type=args.pool_type).to(**options)
    is_global = torch.arange(args.length, device=args.device)[None] < 1
    x = torch.randn(1, args.length, DIM, **options)
    query, key, value = (torch.randn(1, HEADS, args.length, DIM // HEADS, **options) for _ in range(3))
    pools = POOLING.num_pools(args.length)
    pooled = [torch.randn(1, HEADS, pools, DIM // HEADS, **options) for _ in range(2)]
    has_weight = args.pool_type in ("ldconv", "mean-ldconv")
    weights = [torch.randn(POOLING.kernel_size, DIM, **options) for _ in range(2 * has_weight)]

    def whole(x: Tensor, *parameters: Tensor) -> Tensor:
        return layer(x, global_mask=GlobalTokens(is_global))

    def pool(x: Tensor, *weights: Tensor) -> Tensor:  # as the layer does, before projecting
        both = [
            pool_keys(x[:, None], POOLING, kind=args.pool_type, weight=weight)[0] for weight in weights or (None, None)
        ]
        return both[0] + both[1]

    def level_two(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return band_attention(query, key, value, window=POOLED_WINDOW, pooling=POOLING)

    return {
        "layer": (whole, [x, *layer.parameters()]),
        "level one": (level_one_with_global_token, [query, key, value]),
        "pooling": (pool, [x, *weights]),
        "level two": (level_two, [query, *pooled]),
    }


def count(args: argparse.Namespace, call: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[float, float, float]:
    """Launches, microseconds on the device, and by the clock, of one forward and backward pass."""
    inputs = [x.detach().requires_grad_() if not x.requires_grad else x for x in inputs]
    grad = torch.ones_like(call(*inputs))

    def passes() -> None:
        for _ in range(RUNS):
            torch.autograd.grad(call(*inputs), inputs, grad, allow_unused=True)

    passes()
    start = clock(args.device)
    passes()
    seconds = clock(args.device) - start
    on_gpu = args.device == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with profile(activities=activities) as profiled:
        passes()
        clock(args.device)
    events = profiled.events()
    if on_gpu:
        events = [event for event in events if event.device_type == DeviceType.CUDA]
        busy = sum(event.device_time for event in events)
    else:
        events = [event for event in events if event.name.startswith("aten::")]
        busy = sum(event.self_cpu_time_total for event in events)
    if not events:
        raise SystemExit("torch's profiler shows nothing on this device")
    return len(events) / RUNS, busy / RUNS, 1e6 * seconds / RUNS


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--length", type=int, default=16384, help="tokens (default: %(default)s)")
    add("--device", default="cuda", choices=("cuda", "cpu"), help="(default: %(default)s)")
    add("--dtype", default="bfloat16", choices=DTYPES, help="(default: %(default)s)")
    add("--pool-type", default="ldconv", choices=POOL_TYPES, help="(default: %(default)s)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    args = parser().parse_args(arguments)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no GPU here")
    args.threads = torch.get_num_threads()
    print(machine(args))
    print(f"{args.length} tokens, d {DIM}, {HEADS} heads, {args.dtype}, {args.pool_type}; forward + backward, batch 1")
    rows = {name: count(args, *part) for name, part in parts(args).items()}
    launched, busy = ("launches", "µs on device") if args.device == "cuda" else ("operators", "µs of CPU")
    heads = (launched, busy, "of layer", "µs by clock")
    print(f"\n{'':<12}" + "".join(f"{head:>14}" for head in heads))
    for name, (number, microseconds, wall) in rows.items():
        share = microseconds / rows["layer"][1]
        print(f"{name:<12}{number:>14.0f}{microseconds:>14.0f}{share:>14.1%}{wall:>14.0f}")


if __name__ == "__main__":
    main()

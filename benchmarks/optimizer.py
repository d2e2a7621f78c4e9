"""One update of 140 million float32 parameters: fused_adamw beside fairseq's adam.

    python benchmarks/optimizer.py [--millions 140] [--device cpu] [--threads 1] [--repeats 7]

Parameters must be equal after the first updates, to 1e-6, or nothing is timed. On a CPU the time is that of the
process on all its threads, on a GPU that of the wall after synchronizing. Where NVIDIA's apex is installed, fairseq
uses its fused Adam on a GPU instead of the one timed here.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from fairseq.optim.adam import Adam

from fairseq_poolingformer import patches
from fairseq_poolingformer.training.optimizers import FusedAdamW

# no ε, which fairseq adds before the second moment's bias correction
SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.98), "weight_decay": 0.01, "eps": 1e-20}
OPTIMIZERS = {
    "fused_adamw": lambda parameters: FusedAdamW(parameters, fused=True, **SETTINGS),
    "adam": lambda parameters: Adam(parameters, **SETTINGS),
}


def parameters(millions: int, device: str) -> list[torch.nn.Parameter]:
    """Matrices of 768 × 3,072 and vectors of 768 with a gradient, as many as make so many numbers."""
    torch.manual_seed(0)
    count = max(1, round(millions * 1e6 / (768 * 3072)))
    made = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in [(768, 3072), (768,)] * count]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def seconds(step: Callable[[], object], repeats: int, device: str) -> list[float]:
    """Times of so many calls."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for _ in range(repeats):
        if device != "cpu":
            torch.cuda.synchronize()
        start = clock()
        step()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--millions", type=int, default=140, help="of parameters (default: %(default)s)")
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    add("--repeats", type=int, default=7)
    args = parser.parse_args()
    patches.quiet_logging()
    torch.set_num_threads(args.threads)
    device = torch.cuda.get_device_name() if args.device != "cpu" else platform.processor() or platform.machine()
    print(
        f"{device}, {args.threads} threads, torch {torch.__version__}, {args.millions} million parameters, "
        f"median of {args.repeats} [least, greatest], {'process CPU' if args.device == 'cpu' else 'wall'} time"
    )
    times, results = {}, {}
    for name, build in OPTIMIZERS.items():
        updated = parameters(args.millions, args.device)
        optimizer = build(updated)
        for _ in range(2):  # the first makes the moments
            optimizer.step()
        results[name] = [parameter.detach().clone() for parameter in updated[:8]]
        times[name] = seconds(optimizer.step, args.repeats, args.device)
    error = max(float((x - y).abs().max()) for x, y in zip(*results.values(), strict=True))
    if not error < 1e-6:
        raise SystemExit(f"after two updates parameters differ by {error:.2g}; no times are given")
    fused = statistics.median(times["fused_adamw"])
    for name, values in times.items():
        spread = f"[{1e3 * min(values):.1f}, {1e3 * max(values):.1f}]"
        median = statistics.median(values)
        print(f"  {name:<12} {1e3 * median:9.1f} ms  {spread:<18} {median / fused:6.2f} ×")


if __name__ == "__main__":
    main()

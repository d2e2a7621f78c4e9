"""The host's microseconds of each kind of layer: Triton computes nothing, PyTorch's tensors are tiny.

    python benchmarks/gpu/hosttime.py [--layers NAME …]

CPU time of one thread, the least of many calls. The ordinary layer has 32 tokens, so that its products take no time.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable

import fakegpu  # noqa: F401
import layers
import torch


def microseconds(function: Callable[[], object], calls: int) -> float:
    times = []
    for _ in range(calls):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return min(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", default=[layers.ORDINARY, *layers.LAYERS], metavar="NAME")
    parser.add_argument("--calls", type=int, default=120)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.disable()
    print(f"{'layer':34s}{'global':>7s}{'padding':>8s}{'forward':>9s}{'both':>9s}")
    for name in options.layers:
        length, dim = 32 if name == layers.ORDINARY else 144, 16
        for with_global, with_padding in ((False, False), (True, False), (True, True)):
            torch.manual_seed(0)
            masks = layers.masks_of(length, with_global=with_global, with_padding=with_padding)
            module, x = layers.build(name, dim, 1), torch.randn(1, length, dim, requires_grad=True)
            grad, leaves = torch.ones(1, length, dim), [x, *module.parameters()]

            def forward(module=module, x=x, masks=masks) -> None:
                with torch.no_grad():
                    module(x, masks=masks)

            def both(module=module, x=x, masks=masks, leaves=leaves, grad=grad) -> None:
                torch.autograd.grad(module(x, masks=masks), leaves, grad, allow_unused=True)

            both()
            times = [microseconds(function, options.calls) for function in (forward, both)]
            print(f"{name:34s}{with_global:7d}{with_padding:8d}{times[0]:9.0f}{times[1]:9.0f}", flush=True)


if __name__ == "__main__":
    main()

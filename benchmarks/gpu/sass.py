"""Registers, spills, programs of a multiprocessor, and instructions of the loops of the compiled attention kernels.

python benchmarks/gpu/sass.py [--capability 9.0] [--head-dim 64] [--only "window 256"]
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import tempfile
import warnings
from typing import Any

import fakegpu
import torch
import triton

from fairseq_poolingformer.attention import Masks, Pooling, Window, band_attention
from fairseq_poolingformer.attention.backends.triton import backend, backward, forward, launches
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

KERNELS = forward.forward, backward.backward_queries, backward.backward_keys
LENGTH, WIDTH = 16384, 768
# by compute capability: KiB of shared memory and warps of a multiprocessor, which has 65,536 registers
MULTIPROCESSORS = {(8, 0): (164, 64), (8, 6): (100, 48), (8, 9): (100, 48), (9, 0): (228, 64), (12, 0): (100, 48)}


def disassembled(binary: Any) -> tuple[str, str]:
    """cuobjdump's resources and nvdisasm's code of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        tools = (triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage"), (triton.knobs.nvidia.nvdisasm.path, "-c")
        usage, code = (subprocess.run([*x, file.name], capture_output=True, text=True).stdout for x in tools)
    return usage, code


def inner_loops(code: str) -> list[tuple[list[str], int]]:
    """The instructions of each loop without a loop in it, and how many of them :func:`left_out` counts."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    for line in code.splitlines():
        if match := re.match(r"\s*(\.L_x_\d+):", line):
            labels[match[1]] = len(instructions)
        elif match := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(match[1])
    jumps = {
        place: labels[match[1]]
        for place, instruction in enumerate(instructions)
        if (match := re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", instruction)) and match[1] in labels
    }
    loops = [(target, place) for place, target in jumps.items() if target <= place]
    inner = [x for x in loops if not any(y != x and x[0] <= y[0] and y[1] <= x[1] for y in loops)]
    return [(instructions[start : stop + 1], left_out(jumps, start, stop)) for start, stop in inner]


def left_out(jumps: dict[int, int], start: int, stop: int) -> int:
    """The instructions of a loop that a pass leaves out which takes every jump forward."""
    count = 0
    for place, target in sorted(jumps.items()):
        if start <= place < target <= stop:
            count += target - place - 1
            start = target
    return count


def programs(registers: int, shared: int, warps: int) -> int:
    """The programs that a multiprocessor has at a time."""
    kib, most_warps = MULTIPROCESSORS[fakegpu.Driver.capability]
    by_registers = 65536 // (-(-registers // 8) * 8 * 32 * warps)
    return min(by_registers, (kib << 10) // (shared + 1024), most_warps // warps)


def report(name: str, binary: Any) -> None:
    usage, code = disassembled(binary)
    registers, spilled = (int(re.search(rf"{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))
    shared, resident = binary.metadata.shared, programs(registers, binary.metadata.shared, binary.metadata.num_warps)
    print(f"  {name}: {registers} registers, {spilled} bytes spilled, {shared} bytes shared, {resident} programs")
    for loop, skipped in inner_loops(code):
        operators = collections.Counter(re.sub(r"^@!?U?P\w+\s+", "", x.strip()).split()[0] for x in loop)
        products = {x: count for x, count in operators.items() if "MMA" in x}
        if products:
            print(f"    loop of {len(loop)} instructions, {skipped} of them in branches, products {products}")


def compiled(
    head_dim: int, num_keys: int = LENGTH, pools: dict[str, Any] | None = None, **arguments: Any
) -> dict[str, list[Any]]:
    """The kernels that a call, forward and backward, compiles, by name; with ``pools`` one softmax over both."""
    num_pools = 0 if pools is None else pools["pooling"].num_pools(LENGTH)
    query, key, value, pooled_key, pooled_value = (
        torch.empty(length, 1, WIDTH // head_dim, head_dim, dtype=torch.bfloat16).permute(1, 2, 0, 3).requires_grad_()
        for length in (LENGTH, num_keys, num_keys, num_pools, num_pools)
    )
    launches.launches_of.cache_clear()
    for kernel in KERNELS:
        kernel.device_caches.clear()
    if pools is None:
        result = band_attention(query, key, value, **arguments)
    else:
        calls = Call.of(query, key, value, **arguments), Call.of(query, pooled_key, pooled_value, **pools)
        result = backend.run_both(*calls)
    result.sum().backward()
    return {kernel.__name__: list(kernel.device_caches[0][0].values()) for kernel in KERNELS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capability", default="9.0", choices=[f"{x}.{y}" for x, y in MULTIPROCESSORS])
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--only", metavar="NAME", help="one of the calls")
    options = parser.parse_args()
    fakegpu.Driver.capability = tuple(map(int, options.capability.split(".")))
    warnings.simplefilter("ignore")
    place, pooling = torch.arange(LENGTH)[None], Pooling(4, 4)
    unseen = UnseenTokens(Window(128), pooling, place >= 0)
    pools: dict[str, Any] = {"pooling": pooling, "window": Window(512)}
    beside: dict[str, Any] = {**pools, "score_terms": (unseen,), "masks": unseen.masks}
    calls: dict[str, dict[str, Any]] = {
        "window 256": {"window": Window(256)},
        "window 256, one global token": {"window": Window(256), "masks": Masks(place < 1)},
        "window 256, padding": {"window": Window(256), "masks": Masks(None, place > LENGTH - 9)},
        "pools of 4 within 512": {"num_keys": pooling.num_pools(LENGTH), **pools},
        "one softmax, window 128, pools of 4 within 512": {"window": Window(128), "pools": beside},
    }
    for title, arguments in calls.items():
        if options.only not in (None, title):
            continue
        print(title)
        for name, binaries in compiled(options.head_dim, **arguments).items():
            for binary in binaries if "pools" in arguments else binaries[:1]:  # the others are of global queries
                report(name, binary)


if __name__ == "__main__":
    main()

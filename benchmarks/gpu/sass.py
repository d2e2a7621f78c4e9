"""Registers, spills and the instructions of loops of the attention kernels as code of compute capability 9.0.

python benchmarks/gpu/sass.py
"""

from __future__ import annotations

import collections
import re
import subprocess
import tempfile
import warnings
from typing import Any

import fakegpu  # noqa: F401
import torch
import triton

from fairseq_poolingformer.attention import Masks, Pooling, Window, band_attention
from fairseq_poolingformer.attention.backends.triton import backend, backward, forward, launches
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

KERNELS = forward.forward, backward.backward_queries, backward.backward_keys
LENGTH, HEADS, HEAD_DIM = 16384, 12, 64


def disassembled(binary: Any) -> tuple[str, str]:
    """cuobjdump's resources and nvdisasm's code of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        tools = (triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage"), (triton.knobs.nvidia.nvdisasm.path, "-c")
        usage, code = (subprocess.run([*x, file.name], capture_output=True, text=True).stdout for x in tools)
    return usage, code


def inner_loops(code: str) -> list[list[str]]:
    """The instructions of each loop without a loop in it."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    for line in code.splitlines():
        if match := re.match(r"\s*(\.L_x_\d+):", line):
            labels[match[1]] = len(instructions)
        elif match := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(match[1])
    loops = []
    for last, instruction in enumerate(instructions):
        match = re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", instruction)
        if match and labels.get(match[1], last + 1) <= last:
            loops.append((labels[match[1]], last))
    inner = [x for x in loops if not any(y != x and x[0] <= y[0] and y[1] <= x[1] for y in loops)]
    return [instructions[start : stop + 1] for start, stop in inner]


def report(name: str, binary: Any) -> None:
    usage, code = disassembled(binary)
    registers, spilled = (int(re.search(rf"{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))
    print(f"  {name}: {registers} registers, {spilled} bytes spilled, {binary.metadata.shared} bytes of shared memory")
    for loop in inner_loops(code):
        operators = collections.Counter(re.sub(r"^@!?U?P\w+\s+", "", x.strip()).split()[0] for x in loop)
        products = {x: count for x, count in operators.items() if "MMA" in x}
        if products:
            print(f"    loop of {len(loop)} instructions, products {products}")


def compiled(num_keys: int = LENGTH, pools: dict[str, Any] | None = None, **arguments: Any) -> dict[str, list[Any]]:
    """The kernels that a call, forward and backward, compiles, by name; with ``pools`` one softmax over both."""
    num_pools = 0 if pools is None else pools["pooling"].num_pools(LENGTH)
    query, key, value, pooled_key, pooled_value = (
        torch.empty(length, 1, HEADS, HEAD_DIM, dtype=torch.bfloat16).permute(1, 2, 0, 3).requires_grad_()
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
        print(title)
        for name, binaries in compiled(**arguments).items():
            for binary in binaries if "pools" in arguments else binaries[:1]:  # the others are of global queries
                report(name, binary)


if __name__ == "__main__":
    main()

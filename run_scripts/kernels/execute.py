"""Execute calls of calls.py on a CPU, as Triton compiles them, under ttsem's sanitizer.

    python run_scripts/kernels/execute.py [--calls NAME …] [--dtypes NAME …]

Prints a line of JSON for each: what was found, an access or a race with its line, or numbers that are off.
"""

from __future__ import annotations

import argparse
import json
import linecache
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from ttsem import sanitize

from fairseq_poolingformer.attention.backends import self_check
from run_scripts.kernels.calls import CALLS, DTYPES, GREATEST_ERROR, Problem, error

TENSORS = ("out", "query", "key", "value", "pool_key", "pool_value")
EMPTY = [getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty")]


class UnwrittenIsNaN(TorchDispatchMode):
    """Fills new memory with NaN; ttsem does so too, but not in backward passes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out.fill_(torch.nan) if func.overloadpacket in EMPTY and out.is_floating_point() else out


@contextmanager
def sanitized(capability: int) -> Iterator[sanitize.Session]:
    """Every launch is executed on the CPU from what Triton compiles for a compute capability (90 for 9.0).

    Self-checks, which would run in front of the first call of each kind, are left out. ttsem's GPU has no random
    numbers that could be restored.
    """
    without_check = patch.object(self_check, "once", lambda variant, check: None)
    without_fork = patch.object(torch.random, "fork_rng", lambda devices: nullcontext())
    with without_check, without_fork, sanitize.session(capability) as session, UnwrittenIsNaN():
        yield session


class Finding(NamedTuple):
    """The result of executing a call: ``by`` the sanitizer or the numbers, None for nothing wrong; and ``what``."""

    by: str | None
    what: str


def describe(fault: sanitize.Fault) -> str:
    """The kind of a fault, its place in the source, and the tensor."""
    # ttsem gives no place for a function that is called in several others; its own place comes first
    place = re.search(r'"([^"]+\.py)":(\d+)', fault.op)
    path, line = (place[1], int(place[2])) if place else (fault.source_file, fault.source_line)
    text = linecache.getline(path, line).strip()
    return f"{fault.kind} at {Path(path).name}:{line} `{text}`, of {fault.buffer}"


def execute(call: Problem, dtype: torch.dtype) -> Finding:
    """Execute a call, forward and backward, inside of :func:`sanitized`."""
    try:
        results = call.results(dtype)
    except sanitize.KernelFault as stop:
        return Finding("sanitizer", describe(stop.fault))
    errors = {name: error(*pair) for name, pair in results.items()}
    shares = {name: x / GREATEST_ERROR[dtype] / (1 if name in TENSORS else 4) for name, x in errors.items()}
    worst = max(shares, key=lambda name: float("inf") if shares[name] != shares[name] else shares[name])
    return Finding(None if shares[worst] <= 1 else "numbers", f"{worst}: {errors[worst]:.2f} ε")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", nargs="+", default=list(CALLS), choices=CALLS, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES, metavar="NAME")
    given: Any = parser.parse_args()
    for name in given.calls:
        for dtype in given.dtypes:
            with sanitized(90) as session:
                finding = execute(CALLS[name], DTYPES[dtype])
            row = {"call": name, "dtype": dtype, "launches": session.launches, **finding._asdict()}
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()

"""Compare the stages of Triton's compiler: each pass's module, executed by ttsem, must compute what the first one does.

    python run_scripts/kernels/stages.py FOLDER [--capabilities N …] [--minutes N]

The calls are those of calls.py, forward and backward. Each launch is executed from the module that Triton's frontend
makes, which execute.py and the tests compare with exact numbers; every later module, down to the one that becomes
LLVM's, must leave the same in memory. Called again, it runs what is missing. ``ttsem.validate`` ends with "agrees" also
where nothing could be compared, so a launch agrees here only if every stage was compared.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from triton.runtime.jit import JITFunction
from ttsem import harness, minimize, validate

from run_scripts.kernels.calls import CALLS, DTYPES
from run_scripts.kernels.execute import execute, sanitized
from run_scripts.kernels.results import Results


@contextmanager
def recorded() -> Iterator[list[harness.LaunchRecord]]:
    """The launches made inside of :func:`execute.sanitized`, with the tensors before and after.

    ``ttsem.validate`` records a launch by running a script in two other processes, which lose the arguments of our
    kernels of the backward pass.
    """
    records: list[harness.LaunchRecord] = []
    run = JITFunction.run

    def record(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        records.append(harness.record_launch(self, args, options, grid, run, __file__, len(records)).record)

    with patch.object(JITFunction, "run", record):
        yield records


def variants(records: list[harness.LaunchRecord]) -> Iterator[harness.LaunchRecord]:
    """The first launch of each kernel that was compiled."""
    seen = set()
    for record in records:
        _, *specialized = harness._specialize(record.fn, record.args, record.kwargs, harness.target_for("cpu", 90))
        variant = record.fn_name, repr(specialized)
        if variant not in seen:
            seen.add(variant)
            yield record


def compare(record: harness.LaunchRecord, capability: int) -> dict[str, Any]:
    """How many stages there are for a compute capability (90 for 9.0), and what comparing them gave."""
    dump = validate.split_dump(harness.dump_for_launch(record, harness.target_for("cpu", capability)))
    stages = [stage for stage in dump if "llvm.func" not in stage[1]]
    texts = [minimize.strip_locs(text) for _, text in stages]
    changed = [n for n, text in enumerate(texts) if n == 0 or text != texts[n - 1]]
    verdicts = validate.validate_stages(record, [stages[n] for n in changed]).passes
    # a pass that changed nothing hands on what it got
    counts: Counter[str] = Counter()
    for result, start, stop in zip(verdicts, changed, [*changed[1:], len(stages)], strict=False):
        counts[result.verdict] += stop - start
    return {
        "stages": len(stages),
        "modules": len(changed),
        "verdicts": dict(counts),
        "reads": max((result.extra_reads for result in verdicts), default=0),
        "odd": [
            [r.pass_name[:90], r.verdict, r.n_diff, ", ".join(r.unsupported)[:120], r.message[:200]]
            for r in verdicts
            if r.verdict not in ("match", "approx")
        ],
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--capabilities", type=int, nargs="+", default=[90, 80, 100], metavar="N")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    given = parser.parse_args()
    results, done = Results.of(given.folder, "stages"), Results.of(given.folder, "stages_done")
    end = time.monotonic() + 60 * given.minutes
    for name, capability, dtype in product(CALLS, given.capabilities, DTYPES):
        job = f"{name}/{dtype}/{capability}"
        if job in done:
            continue
        if time.monotonic() > end:
            break
        with sanitized(90):
            with recorded() as records:
                finding = execute(CALLS[name], DTYPES[dtype])
            if finding.by:
                print(f"{job}: {finding}", flush=True)
            for number, record in enumerate(variants(records)):
                key = f"{job}/{number}/{record.fn_name}"
                if key in results or time.monotonic() > end:
                    continue
                began = time.monotonic()
                row = compare(record, capability)
                seconds = round(time.monotonic() - began)
                results.add(key, kernel=record.fn_name, capability=capability, dtype=dtype, seconds=seconds, **row)
                print(key, row["verdicts"], f"of {row['stages']} stages, {seconds} s", flush=True)
        if time.monotonic() <= end:
            done.add(job)
    return int(any(row["verdicts"].get("mismatch") for row in results))


if __name__ == "__main__":
    raise SystemExit(main())

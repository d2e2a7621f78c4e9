"""Compare the stages of Triton's compiler: each pass's module, executed by ttsem, must compute what the first one does.

    python run_scripts/kernels/stages.py FOLDER [--capabilities N …] [--minutes N]

The calls are those of calls.py, forward and backward. Each launch is executed from the module that Triton's frontend
makes, which execute.py and the tests compare with exact numbers; every later module, down to the one that becomes
LLVM's, must leave the same in memory. Called again, it runs what is missing. ``ttsem.validate`` ends with "agrees" also
where nothing could be compared, so a launch agrees here only if every stage was compared.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from triton._C import libtriton
from triton.runtime.jit import JITFunction
from ttsem import harness, interp2, minimize, mlir, races, validate
from ttsem.memory import Memory
from ttsem.values import Unsupported

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


NO_WAITS = dict.fromkeys(("ttg.async_wait", "ttng.warp_group_dot_wait"), lambda *given: None)


class CopiesInFlight(races.RaceInterp):
    """Notes accesses to shared memory that an asynchronous copy or product still uses.

    Barriers between warps are beyond ttsem: Triton places them while it converts to LLVM's dialect.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.found: list[str] = []

    def log(self, access: races.Access) -> None:
        for other in self.pending:
            if other.instance != self.instance and "w" in (other.kind, access.kind) and other.overlaps(access):
                self.found.append(f"{other.op[:120]} | {access.op[:120]}")
        super().log(access)


def copies_in_flight(record: harness.LaunchRecord, text: str, waits: bool = True) -> list[str]:
    """The notes of :class:`CopiesInFlight` on the launch's first and last program, or why it could not run.

    Without ``waits`` the program waits for nothing, which must be noted if it has such copies at all.
    """
    module, names = mlir.parse(text), harness._runtime_param_names(record)
    [(name, function)] = module.funcs.items()
    values = harness._arg_values(record, names, function.regions[0].blocks[0], emulated=False)
    arrays = {record.bases[name]: record.pre[name] for name in names if name in record.ptrs}
    grid, found = harness._grid3(record.grid), []
    for place in {(0, 0, 0), tuple(size - 1 for size in grid)}:
        memory = Memory()
        for base, array in arrays.items():
            memory.register(base, array.copy())
        program = CopiesInFlight(module, memory, grid, *interp2.launch_config(text))
        try:
            # the comparison of dataclasses fails on arrays
            with (
                patch.object(races.Access, "__eq__", object.__eq__),
                patch.dict(races._HOOKS, {} if waits else NO_WAITS),
            ):
                program.run(name, values, place)
        except Unsupported as reason:
            return [f"not run: {reason}"]
        found += program.found
    return found


def dumped(record: harness.LaunchRecord, capability: int) -> str:
    """The modules that the compiler's passes receive, as it prints them.

    ``harness.dump_for_launch`` reads them in the million pieces that LLVM writes, which takes longer than to compile.
    """
    mlir.enable_generic_printing()
    library = ctypes.CDLL(libtriton.__file__)
    library._ZN4llvm4errsEv.restype = ctypes.c_void_p
    errors = ctypes.c_void_p(library._ZN4llvm4errsEv())
    library._ZN4llvm11raw_ostream11SetBufferedEv(errors)
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            with patch.dict(os.environ, MLIR_ENABLE_DUMP="1", TRITON_ALWAYS_COMPILE="1"):
                harness._compile_asm(record.fn, record.args, record.kwargs, harness.target_for("cpu", capability))
        finally:
            library._ZN4llvm11raw_ostream14flush_nonemptyEv(errors)
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        return file.read().decode()


def compare(record: harness.LaunchRecord, capability: int) -> dict[str, Any]:
    """How many stages there are for a compute capability (90 for 9.0), and what comparing them gave."""
    dump = validate.split_dump(dumped(record, capability))
    stages = [(name, minimize.strip_locs(text)) for name, text in dump if "llvm.func" not in text]
    changed = [n for n, (_, text) in enumerate(stages) if n == 0 or text != stages[n - 1][1]]
    with patch.object(mlir, "parse", cache(mlir.parse)):  # most of the time goes into it
        verdicts = validate.validate_stages(record, [stages[n] for n in changed]).passes
        copies = copies_in_flight(record, stages[-1][1])
        without_waits = copies_in_flight(record, stages[-1][1], waits=False)
    # a pass that changed nothing hands on what it got
    counts: Counter[str] = Counter()
    for result, start, stop in zip(verdicts, changed, [*changed[1:], len(stages)], strict=False):
        counts[result.verdict] += stop - start
    return {
        "stages": len(stages),
        "modules": len(changed),
        "verdicts": dict(counts),
        "copies": copies,
        "without_waits": without_waits[:1],
        "reads": max((result.extra_reads for result in verdicts), default=0),
        "odd": [
            [r.pass_name[:90], r.verdict, r.n_diff, ", ".join(r.unsupported)[:120], r.message[:200]]
            for r in verdicts
            if r.verdict not in ("match", "approx")
        ],
    }


def agrees(row: dict[str, Any]) -> bool:
    """Whether every stage of a launch was compared, and none differs."""
    verdicts = row["verdicts"]
    return 0 < row["stages"] == verdicts.get("match", 0) + verdicts.get("approx", 0)


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
            done.add(job, call=name, dtype=dtype, launches=len(records), **finding._asdict())
    odd = [row for row in results if not agrees(row) or row["copies"]]
    for row in odd:
        print(f"{row['key']}: {row['verdicts'] or 'nothing was compared'}", *row["odd"], *row["copies"], sep="\n    ")
    stages = sum(row["stages"] for row in results)
    print(f"{len(results.rows)} compiled variants, {stages} stages; {len(odd)} variants do not agree")
    faults = any("mismatch" in row["verdicts"] or row["copies"] for row in odd)
    return int(faults or any(row["by"] for row in done))


if __name__ == "__main__":
    raise SystemExit(main())

"""Measurements in fresh processes, with their memory, and their tables; all benchmarks share them.

Each case is built in a process of its own, so that its memory is its own and a case that needs too much ends alone.
On a CPU the time is that of the process on all its threads, on a GPU that of the wall after synchronizing. Needs torch
alone, and Linux for the memory of a process.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import logging
import multiprocessing
import platform
import resource
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer import attention

GIB = 2**30
DTYPES = ("float32", "bfloat16", "float16")
PACKAGES = ("torch", "transformers", "fairseq", "fairseq-fixed", "triton")


@dataclass(frozen=True)
class Case:
    """Something to measure.

    Attributes:
        name: what the table calls it.
        build: called in the fresh process without arguments; makes the model and its inputs, and returns the
            function to time. It is a module's own function, or a ``functools.partial`` of one, so that it can be sent
            there. The timed function's result comes back, so it must be small and plain: numbers, lists,
            dictionaries, arrays.
        calls: how often the timed function does what is measured; times are divided by it.
    """

    name: str
    build: Callable[[], Callable[[], Any]]
    calls: int = 1


@dataclass
class Result:
    """The measurements of a case.

    Attributes:
        name: the case's.
        seconds: of each run: CPU time of all threads, or wall time on a GPU.
        wall: seconds of each run by the clock.
        baseline: bytes after building, before the first run.
        peak: bytes at the most in any run, warm-ups included.
        value: what the last run returned.
        failure: why there is nothing of all this, in a few words; None if there is.
    """

    name: str
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    baseline: int = 0
    peak: int = 0
    value: Any = None
    failure: str | None = None

    @property
    def median(self) -> float:
        """Seconds of the median run."""
        return statistics.median(self.seconds)


def _memory(name: str) -> int:
    """Bytes of a line of /proc/self/status."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def reset_peak(device: str) -> int:
    """Forget the highest use of memory so far; returns the bytes in use now."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # sets VmHWM back to VmRSS
    return _memory("VmRSS")


def peak(device: str) -> int:
    return _memory("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated()


def clock(device: str) -> float:
    """Seconds of CPU time of this process on all its threads; elsewhere of the wall, on a GPU once it is idle."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that an allocation failed, on a CPU or a GPU."""
    texts = ("can't allocate memory", "out of memory", "cannot allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)


def _work(
    connection: Connection, build: Callable, device: str, threads: int, allocator: str, memory_limit: float | None
) -> None:
    """The fresh process: builds, then runs once for every message, until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    warnings.simplefilter("ignore", FutureWarning)  # of what fairseq and transformers will have to change
    logging.basicConfig(level=logging.WARNING, format="  %(message)s", force=True)
    logging.getLogger("fairseq_poolingformer.attention").setLevel(logging.INFO)  # says which backend is timed
    torch.set_num_threads(threads)
    if allocator == "kept" and not attention.keep_freed_memory():
        raise SystemExit("--allocator kept: the C library is not glibc")
    if allocator == "glibc":
        attention.keep_freed_memory = lambda: False  # the plugin, which is not imported yet, calls it
    if memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory_limit * GIB),) * 2)
    try:
        run = build()
        connection.send(reset_peak(device))
        while True:
            try:
                connection.recv()
            except EOFError:
                return
            start, wall = clock(device), time.perf_counter()
            value = run()
            seconds, wall = clock(device) - start, time.perf_counter() - wall
            connection.send((seconds, wall, peak(device), value))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        connection.send("out of memory" + ("" if memory_limit is None else f" at {memory_limit:.1f} GiB"))


class _Worker:
    """A case in its process."""

    def __init__(self, case: Case, arguments: tuple) -> None:
        context = multiprocessing.get_context("spawn")
        self.result, self.calls = Result(case.name), case.calls
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, case.build, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.result.baseline = self._receive() or 0

    def _receive(self) -> Any:
        """The next message of the process, or None after its failure."""
        try:
            message = self.connection.recv()
        except EOFError:
            self.process.join()
            if self.process.exitcode != -signal.SIGKILL:
                raise SystemExit(f"{self.result.name}: failed with the error above; nothing is reported") from None
            message = "killed, most likely for memory"
        if isinstance(message, str):
            self.result.failure = message
            return None
        return message

    def run(self, counts: bool) -> None:
        """Run once more, if nothing has failed, and keep the time if it counts."""
        if self.result.failure is not None:
            return
        self.connection.send("run")
        if (message := self._receive()) is None:
            return
        seconds, wall, self.result.peak, self.result.value = message
        seconds, wall = seconds / self.calls, wall / self.calls
        if counts:
            self.result.seconds.append(seconds)
            self.result.wall.append(wall)
        print(f"  … {self.result.name}: {seconds:.3g} s{'' if counts else ', warm-up'}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.connection.close()
        self.process.join()


def measure(cases: Sequence[Case], args: argparse.Namespace) -> list[Result]:
    """Measure cases, with what :func:`add_arguments` added.

    With several repeats on a CPU the cases run in turn (A B A B), so that a busy machine slows all alike; their models
    are then in memory at the same time. With a single one, ``--alone`` and on a GPU, each has the memory to itself.
    """
    if args.device == "cuda":
        torch.cuda.empty_cache()  # what the checks before have left
    arguments = (args.device, args.threads, args.allocator, args.memory_limit)
    in_turn = args.repeats > 1 and args.device == "cpu" and not args.alone
    groups = [list(cases)] if in_turn else [[case] for case in cases]
    results = []
    for group in groups:
        workers = [_Worker(case, arguments) for case in group]
        for repeat in range(args.warm_ups + args.repeats):
            for worker in workers:
                worker.run(counts=repeat >= args.warm_ups)
        for worker in workers:
            worker.close()
            results.append(worker.result)
    return results


def must_agree(name: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Refuse to time what computes something else."""
    error = (actual.float() - expected.float()).abs().max().item()
    if not error < tolerance:
        raise SystemExit(f"{name}: differs by {error:.2g} from what it must equal; nothing is timed")


def add_arguments(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    """Add the options of every measurement."""
    add = parser.add_argument
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add("--repeats", type=int, default=repeats, help="runs that count, of which the median (default: %(default)s)")
    add("--warm-ups", type=int, default=1, help="runs before them that do not (default: %(default)s)")
    add("--threads", type=int, default=torch.get_num_threads(), help="of torch (default: %(default)s)")
    add(
        "--allocator",
        default="glibc",
        choices=("glibc", "kept"),
        help="glibc: freed memory goes back to the system, as the C library has it; kept: it is kept for the next "
        "tensor, as the plugin does on a machine without a GPU (default: %(default)s)",
    )
    add("--alone", action="store_true", help="on a CPU, run one case after the other, for their memory; else in turn")
    add(
        "--memory-limit",
        type=float,
        metavar="GIB",
        help="what a process may allocate on a CPU (default: nine tenths of what is free)",
    )


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; on a CPU there is then a memory limit."""
    args = parser.parse_args(arguments)
    if args.repeats < 1 or args.warm_ups < 0:
        parser.error("--repeats must be 1 or more, --warm-ups 0 or more")
    if args.device == "cuda":
        if not torch.cuda.is_available():
            parser.error("--device cuda: torch finds no GPU here")
        args.memory_limit = None  # the GPU's own
    elif args.memory_limit is None:
        meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
        free = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
        args.memory_limit = 0.9 * int(free.split()[1]) * 1024 / GIB
    return args


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine(args: argparse.Namespace) -> str:
    """The processor or GPU, threads and versions, in one line."""
    name = torch.cuda.get_device_name() if args.device == "cuda" else processor()
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # not every benchmark needs every package
    return f"{name}, {args.threads} threads, {', '.join(versions)}"


def print_header(args: argparse.Namespace, what: str) -> None:
    """Print machine, case and options."""
    gpu = args.device == "cuda"
    limit = "" if gpu else f"; a process may take {args.memory_limit:.1f} GiB"
    freed = "; freed memory is kept" if args.allocator == "kept" else ""
    memory = "torch.cuda.max_memory_allocated" if gpu else "highest resident set of the process (VmHWM)"
    print(machine(args))
    print(what)
    seconds = "wall time" if gpu else "CPU time of the process"
    print(f"{seconds}, median of {args.repeats} after {args.warm_ups} warm-ups; memory: {memory}{limit}{freed}")


def print_table(
    results: Sequence[Result], *, tokens: int, columns: dict[str, Callable[[Result], str]] | None = None
) -> None:
    """Print the results; ratios are the first row's number over the row's own, so that more is better."""
    heads = ["s", "least", "greatest", "wall", "× faster", "peak GiB", "beyond model", "KiB/token", "× smaller"]
    heads += list(columns or {})
    width = max(len(result.name) for result in results)
    print("\n" + " " * width + "".join(f"{head:>14}" for head in heads))
    peer = next((result for result in results[:1] if result.failure is None), None)
    for result in results:
        cells = [f"  {result.failure}"]
        if result.failure is None:
            own = result.peak - result.baseline
            faster = f"{peer.median / result.median:.2f}" if peer else "-"
            smaller = f"{peer.peak / result.peak:.2f}" if peer else "-"
            seconds = (result.median, min(result.seconds), max(result.seconds), statistics.median(result.wall))
            cells = [f"{value:.4g}" for value in seconds] + [faster]
            cells += [f"{result.peak / GIB:.2f}", f"{own / GIB:.2f}", f"{own / 1024 / tokens:.1f}", smaller]
            cells += [column(result) for column in (columns or {}).values()]
        print(f"{result.name:<{width}}" + "".join(f"{cell:>14}" for cell in cells))

"""Run the tests of the Triton kernels on a CPU, as Triton compiles them, under ttsem's sanitizer.

    python run_scripts/kernels/cases.py FOLDER [--minutes N] [-- arguments for pytest]

Called again, it runs the cases that have not passed yet.
"""

from __future__ import annotations

import argparse
import linecache
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from ttsem import sanitize

from fairseq_poolingformer.attention.backends import self_check
from run_scripts.kernels.results import ROOT, TESTS, Results

CAPABILITY = 90  # 9.0
EMPTY = [getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty")]


class UnwrittenIsNaN(TorchDispatchMode):
    """Fills new memory with NaN; ttsem does so too, but not in backward passes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out.fill_(torch.nan) if func.overloadpacket in EMPTY and out.is_floating_point() else out


@contextmanager
def sanitized() -> Iterator[sanitize.Session]:
    """Every launch is executed on the CPU from what Triton compiles for CAPABILITY.

    Self-checks, which would run in front of the first call of each kind, are left out. ttsem's GPU has no random
    numbers that could be restored.
    """
    without_check = patch.object(self_check, "once", lambda variant, check: None)
    without_fork = patch.object(torch.random, "fork_rng", lambda devices: nullcontext())
    with without_check, without_fork, sanitize.session(CAPABILITY) as session, UnwrittenIsNaN():
        yield session


def describe(fault: sanitize.Fault) -> str:
    """The kind of a fault, its place in the source, and the tensor."""
    # ttsem gives no place for a function that is called in several others; its own place comes first
    place = re.search(r'"([^"]+\.py)":(\d+)', fault.op)
    path, line = (place[1], int(place[2])) if place else (fault.source_file, fault.source_line)
    text = linecache.getline(path, line).strip()
    return f"{fault.kind} at {Path(path).name}:{line} `{text}`, of {fault.buffer}"


class Recorder:
    """A plugin of pytest that leaves out what has passed before, records the rest, and stops in time."""

    def __init__(self, results: Results, session: Any, end: float) -> None:
        self.results, self.session, self.end = results, session, end
        self.launches, self.began, self.finding = 0, 0.0, ""

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        passed = {row["key"] for row in self.results if row["outcome"] == "passed"}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_runtest_setup(self, item: Any) -> None:
        self.launches, self.began, self.finding = self.session.launches, time.process_time(), ""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any):
        outcome = yield
        if error := outcome.excinfo and outcome.excinfo[1]:
            fault = getattr(error, "fault", None)
            self.finding = describe(fault) if fault else f"{type(error).__name__}: {error}"[:500]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            launches, seconds = self.session.launches - self.launches, time.process_time() - self.began
            self.results.add(
                report.nodeid,
                outcome=report.outcome,
                finding=self.finding or str(report.longrepr or "")[-500:],
                launches=launches,
                seconds=round(seconds, 1),
            )

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: Any) -> None:
        if time.monotonic() > self.end:
            item.session.shouldstop = "the time is over; a later call continues"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("rest", nargs="*", metavar="ARGUMENT", help="after --")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    options = ["-q", "-p", "no:cacheprovider", "-m", "kernels", "--rootdir", str(ROOT)]
    with sanitized() as session:
        results = Results.of(given.folder)
        status = pytest.main([*options, *map(str, TESTS), *given.rest], plugins=[Recorder(results, session, end)])
    print(f"{session.races_unchecked} launches of this call were too large to be checked for races")
    failed = any(row["outcome"] == "failed" for row in results)
    return int(failed or status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR))


if __name__ == "__main__":
    raise SystemExit(main())

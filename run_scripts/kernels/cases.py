"""Run the tests of the Triton kernels on a CPU, as Triton compiles them, under ttsem's sanitizer.

    python run_scripts/kernels/cases.py FOLDER [--minutes N] [-- arguments for pytest]

Called again, it runs the cases that have not passed yet.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pytest

from run_scripts.kernels.execute import describe, sanitized
from run_scripts.kernels.results import ROOT, TESTS, Results

CAPABILITY = 90


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
    with sanitized(CAPABILITY) as session:
        results = Results.of(given.folder, "cases")
        status = pytest.main([*options, *map(str, TESTS), *given.rest], plugins=[Recorder(results, session, end)])
    print(f"{session.races_unchecked} launches of this call were too large to be checked for races")
    failed = any(row["outcome"] == "failed" for row in results)
    return int(failed or status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR))


if __name__ == "__main__":
    raise SystemExit(main())

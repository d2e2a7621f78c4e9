"""Print what the scripts of this folder have found, as tables.

python run_scripts/kernels/report.py FOLDER
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from run_scripts.kernels.results import Results

KERNELS = ("forward", "backward_queries", "backward_keys", "combine")
Row = dict[str, Any]


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    header = list(header)
    for line in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(map(str, line)) + " |"


def cases(rows: Iterable[Row]) -> Iterator[str]:
    """Cases by test; then each that did not pass."""
    rows = list(rows)
    tests = defaultdict(list)
    for row in rows:
        tests[row["key"].partition("[")[0].rpartition("/")[2]].append(row)
    lines = []
    for name, group in [*tests.items(), ("all", rows)]:
        passed = sum(row["outcome"] == "passed" for row in group)
        launches, seconds = (sum(row[number] for row in group) for number in ("launches", "seconds"))
        lines.append((f"`{name}`", len(group), passed, launches, f"{seconds:.0f}"))
    yield from table(("test", "cases", "passed", "launches", "CPU seconds"), lines)
    for row in rows:
        if row["outcome"] != "passed":
            yield f"\n{row['key']}: {row['outcome']}: {row['finding']}"


def mutations(rows: Iterable[Row]) -> Iterator[str]:
    """Faults made on purpose, and what found them."""
    columns = "key", "place", "call", "dtype", "by", "what"
    lines = [[row[name] or "nothing" for name in columns] for row in rows]
    return table(("fault", "at", "call", "dtype", "found by", "what"), lines)


def agrees(row: Row) -> bool:
    """Whether every stage of a launch was compared, and none differs."""
    verdicts = row["verdicts"]
    return 0 < row["stages"] == verdicts.get("match", 0) + verdicts.get("approx", 0)


def stages(rows: Iterable[Row]) -> Iterator[str]:
    """Compiled variants and their stages, by kernel, compute capability and dtype; then each that does not agree."""
    rows = list(rows)
    groups = defaultdict(list)
    for row in rows:
        groups[KERNELS.index(row["kernel"]), row["capability"], row["dtype"]].append(row)
    lines = []
    for (kernel, capability, dtype), group in sorted(groups.items()):
        counts = Counter[str]()
        for row in group:
            counts.update(row["verdicts"])
        compared = sum(counts[name] for name in ("match", "approx", "mismatch"))
        line = [f"`{KERNELS[kernel]}`", capability / 10, dtype, len(group), sum(map(agrees, group))]
        line += [sum(row["stages"] for row in group), compared]
        line += [counts[name] for name in ("match", "approx", "mismatch")]
        lines.append(
            [*line, sum(bool(row["without_waits"]) for row in group), sum(bool(row["copies"]) for row in group)]
        )
    header = "kernel", "target", "dtype", "variants", "agree", "stages", "compared", "equal", "close", "different"
    header += "copy", "early"  # variants with asynchronous copies, and with an access to what is still being copied
    yield from table(header, lines)
    for row in rows:
        if not agrees(row) or row["copies"]:
            yield f"\n{row['key']}: {row['verdicts'] or 'nothing was compared'}"
            yield from (f"    {odd}" for odd in (*row["odd"], *row["copies"]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for lines in (cases, mutations, stages):
        results = Results.of(folder, lines.__name__)
        if results.rows:
            print(f"\n## {lines.__name__}\n", *lines(results), sep="\n")


if __name__ == "__main__":
    main()

"""A table of scores beside the published figures; several trainings of an experiment give their mean and deviation.

    python run_scripts/longformer_tasks/scores.py --row NAME METRIC PUBLISHED SCORES.json … [--row …]

The files are those of ``poolingformer-score-task --json``; one that does not exist leaves its cell empty.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.text.table import aligned


def cell(metric: str, files: Sequence[Path]) -> str:
    """Return the mean of a figure and, of several files, the standard deviation; "-" where no file is there.

    Raises:
        ValueError: a file lacks the figure.
    """
    figures = []
    for path in filter(Path.is_file, files):
        scores = json.loads(path.read_text(encoding="utf-8"))
        if metric not in scores:
            raise ValueError(f"{path}: no figure {metric!r}; there are {', '.join(scores)}")
        figures.append(scores[metric])
    if not figures:
        return "-"
    mean = f"{statistics.fmean(figures):.2f}"
    return mean if len(figures) == 1 else f"{mean} ± {statistics.stdev(figures):.2f} ({len(figures)})"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--row", nargs="+", action="append", required=True, metavar="WORD")
    rows = [["experiment", "figure", "this run", "published"]]
    for row in parser.parse_args().row:
        if len(row) < 4:
            parser.error(f"--row {' '.join(row)}: give NAME METRIC PUBLISHED and one file or more")
        name, metric, published, *files = row
        try:
            rows.append([name, metric, cell(metric, list(map(Path, files))), published])
        except ValueError as error:
            parser.error(str(error))
    print(aligned(rows, left=2))


if __name__ == "__main__":
    main()

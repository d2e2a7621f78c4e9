"""A table of ROUGE: results of ``poolingformer-score --json``, beside published numbers where there are any.

    python run_scripts/compare.py "model=rouge.json" "lead=rouge-lead.json" ["published=47.86,19.54,42.35" …]

A name may be given twice, once with a file and once with the published R-1, R-2, R-L; both stand in one row. Files that
are not there leave their cells empty.
"""

import argparse
import json
import sys
from pathlib import Path

OURS = {"rouge1": "R-1", "rouge2": "R-2", "rougeL": "R-L", "rougeLsum": "R-Lsum"}


def read_scores(path: Path) -> list[str]:
    """F1 × 100 of rouge-score with stemming, which ``poolingformer-score`` puts first."""
    first = json.loads(path.read_text(encoding="utf-8"))["flavours"][0]
    return [f"{100 * first['scores'][name]['f1']['mean']:.2f}" for name in OURS]


def table(ours: dict[str, list[str]], published: dict[str, list[str]]) -> str:
    """Lay out one row for each name, in the order in which they came."""
    head = ["F1 × 100", *OURS.values()] + (["published R-1", "R-2", "R-L"] if published else [])
    rows = [head]
    for name in dict.fromkeys([*ours, *published]):
        row = [name, *ours.get(name, ["-"] * len(OURS))]
        rows.append(row + (published.get(name, ["-"] * 3) if published else []))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", metavar="NAME=RESULT", help="a file, or R-1,R-2,R-L as published")
    ours, published = {}, {}
    for argument in parser.parse_args().results:
        name, equals, result = argument.partition("=")
        if not equals:
            parser.error(f"{argument}: give NAME=FILE or NAME=R-1,R-2,R-L")
        numbers = result.split(",")
        if len(numbers) == 3:
            published[name] = numbers
        else:
            ours[name] = read_scores(Path(result)) if Path(result).is_file() else ["-"] * len(OURS)
    print(table(ours, published))
    return 0


if __name__ == "__main__":
    sys.exit(main())

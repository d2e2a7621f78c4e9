"""A table of results of ``poolingformer-score --json`` or ``poolingformer-score-qa --json``, beside published numbers.

    python run_scripts/compare.py rouge "model=rouge.json" "lead=rouge-lead.json" ["model=47.86,19.54,42.35" …]
    python run_scripts/compare.py answers "model=scores.json" ["model=77.5,58.6" …]

A name may be given twice, once with a file and once with the published numbers; both stand in one row. Files that are
not there leave their cells empty.
"""

import argparse
import json
import sys
from pathlib import Path

from fairseq_poolingformer.text.table import aligned

COLUMNS = {"rouge": ("R-1", "R-2", "R-L", "R-Lsum"), "answers": ("long", "short")}
PUBLISHED = {"rouge": ("R-1", "R-2", "R-L"), "answers": ("long", "short")}


def read_rouge(scores: dict) -> list[float]:
    """F1 of rouge-score with stemming, which ``poolingformer-score`` puts first."""
    return [scores["flavours"][0]["scores"][name]["f1"]["mean"] for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")]


def read_answers(scores: dict) -> list[float]:
    """F1 of long and short answers at the best threshold; TyDi QA's averages over languages but English, if any."""
    average = scores["official"].get("average", {})
    if set(scores.get("languages", ())) - {"english"}:
        return [average["avg_passage_f1"], average["avg_minimal_f1"]]
    return [scores["all"][name]["best"]["f1"] for name in ("long", "short")]


def cells(kind: str, path: Path) -> list[str]:
    """A row's figures × 100, or dashes without the file."""
    if not path.is_file():
        return ["-"] * len(COLUMNS[kind])
    read = {"rouge": read_rouge, "answers": read_answers}[kind]
    return [f"{100 * value:.2f}" for value in read(json.loads(path.read_text(encoding="utf-8")))]


def table(kind: str, ours: dict[str, list[str]], published: dict[str, list[str]]) -> str:
    """Lay out one row for each name, in the order in which they came."""
    first, *others = PUBLISHED[kind]
    head = ["F1 × 100", *COLUMNS[kind], *([f"published {first}", *others] if published else [])]
    rows = [head]
    for name in dict.fromkeys([*ours, *published]):
        row = [name, *ours.get(name, ["-"] * len(COLUMNS[kind]))]
        rows.append(row + (published.get(name, ["-"] * len(PUBLISHED[kind])) if published else []))
    return aligned(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=sorted(COLUMNS))
    parser.add_argument("results", nargs="+", metavar="NAME=RESULT", help="a file, or the numbers as published")
    args = parser.parse_args()
    ours, published = {}, {}
    for argument in args.results:
        name, equals, result = argument.partition("=")
        if not equals:
            parser.error(f"{argument}: give NAME=FILE or NAME={','.join(PUBLISHED[args.kind])}")
        numbers = result.split(",")
        if len(numbers) == len(PUBLISHED[args.kind]):
            published[name] = numbers
        else:
            ours[name] = cells(args.kind, Path(result))
    print(table(args.kind, ours, published))
    return 0


if __name__ == "__main__":
    sys.exit(main())

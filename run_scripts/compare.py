"""A table of results beside the published numbers.

    python run_scripts/compare.py rouge "model=rouge.json" "lead=rouge-lead.json" ["model=47.86,19.54,42.35" …]
    python run_scripts/compare.py answers "model=scores.json" ["model=77.5,58.6" …]
    python run_scripts/compare.py bits "model=test.json" ["model=0.99" …]

A name may be given twice, once with a file and once with the published numbers; both go into one row. A file that does
not exist leaves its cells empty.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.text.table import aligned


@dataclass(frozen=True)
class Kind:
    """The figures of a kind of result: its columns, those that papers publish, and its figures as text."""

    title: str
    columns: tuple[str, ...]
    published: tuple[str, ...]
    read: Callable[[dict], list[str]]


def read_rouge(scores: dict) -> list[str]:
    """F1 of rouge-score with stemming, which ``poolingformer-score --json`` puts first."""
    rouge = scores["flavours"][0]["scores"]
    return [f"{100 * rouge[name]['f1']['mean']:.2f}" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")]


def read_answers(scores: dict) -> list[str]:
    """F1 of long and short answers at the best threshold, as ``poolingformer-score-qa --json`` writes them.

    Of TyDi QA, the averages over languages other than English.
    """
    average = scores["official"].get("average", {})
    if set(scores.get("languages", ())) - {"english"}:
        values = [average["avg_passage_f1"], average["avg_minimal_f1"]]
    else:
        values = [scores["all"][name]["best"]["f1"] for name in ("long", "short")]
    return [f"{100 * value:.2f}" for value in values]


def read_bits(result: dict) -> list[str]:
    """Bits per character, as ``poolingformer-eval-lm --output`` writes them."""
    return [f"{result['bpc']:.4f}"]


KINDS = {
    "rouge": Kind("F1 × 100", ("R-1", "R-2", "R-L", "R-Lsum"), ("R-1", "R-2", "R-L"), read_rouge),
    "answers": Kind("F1 × 100", ("long", "short"), ("long", "short"), read_answers),
    "bits": Kind("bits per character", ("this run",), ("",), read_bits),
}


def table(kind: Kind, results: list[tuple[str, str]]) -> str:
    """Lay out one row for each name, in the order in which they come.

    Args:
        kind: what the results are.
        results: name, and a .json file or numbers separated by commas.

    Raises:
        ValueError: there are not as many numbers as are published.
    """
    ours, published = {}, {}
    for name, result in results:
        if result.endswith(".json"):
            path = Path(result)
            found = kind.read(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
            ours[name] = found or ["-"] * len(kind.columns)
        else:
            published[name] = result.split(",")
            if len(published[name]) != len(kind.published):
                raise ValueError(f"{name}={result}: give a .json file, or {len(kind.published)} published numbers")
    first, *others = kind.published
    rows = [[kind.title, *kind.columns, *([f"published {first}".strip(), *others] if published else [])]]
    for name in dict.fromkeys(name for name, _ in results):
        row = [name, *ours.get(name, ["-"] * len(kind.columns))]
        rows.append(row + (published.get(name, ["-"] * len(kind.published)) if published else []))
    return aligned(rows)


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("results", nargs="+", metavar="NAME=RESULT", help="a .json file, or the numbers as published")
    args = parser.parse_args()
    for argument in args.results:
        if "=" not in argument:
            parser.error(f"{argument}: give NAME=FILE.json, or NAME= and the published numbers")
    try:
        print(table(KINDS[args.kind], [tuple(argument.split("=", 1)) for argument in args.results]))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())

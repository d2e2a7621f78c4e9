"""How many facts summaries state right, exactly, of documents that ``preprocess.facts`` made.

    python run_scripts/reader/count_facts.py --references references.txt "NAME=summaries.txt" ["NAME=summaries.txt" …]

One summary a line. A fact is right where the summary has the reference's sentence about it, letter by letter.
"""

import argparse
import re
import sys
from pathlib import Path

from fairseq_poolingformer.text.table import aligned
from preprocess.fact_documents import FIELDS, SUMMARIES

_PATTERNS = {field: re.compile(re.escape(text).replace(r"\{\}", "([^.]+)")) for field, text in SUMMARIES.items()}


def read_facts(summary: str) -> dict[str, str]:
    """Values by field, those that the summary has a sentence for."""
    found = {field: pattern.search(summary) for field, pattern in _PATTERNS.items()}
    return {field: match.group(1) for field, match in found.items() if match}


def shares_right(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    """Of the references' facts the share that the hypotheses have right, by field, and of ``all``."""
    right = dict.fromkeys((*FIELDS, "all"), 0)
    total = dict(right)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        said = read_facts(hypothesis)
        for field, value in read_facts(reference).items():
            for name in (field, "all"):
                right[name] += said.get(field) == value
                total[name] += 1
    return {name: right[name] / max(1, total[name]) for name in total}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("summaries", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--references", type=Path, required=True)
    args = parser.parse_args()
    references = args.references.read_text(encoding="utf-8").splitlines()
    rows = [["facts right, %", *FIELDS, "all"]]
    for argument in args.summaries:
        name, _, path = argument.rpartition("=")
        hypotheses = Path(path).read_text(encoding="utf-8").splitlines()
        if len(hypotheses) != len(references):
            parser.error(f"{path} has {len(hypotheses)} lines, {args.references} {len(references)}")
        rows.append([name, *(f"{100 * share:.0f}" for share in shares_right(hypotheses, references).values())])
    print(aligned(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

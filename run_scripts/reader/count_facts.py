"""How many facts summaries state right, exactly, of documents that ``preprocess.facts`` made.

    python run_scripts/reader/count_facts.py --references R.txt --documents D.txt "NAME=summaries.txt" …

One text a line. A fact is right where the summary has the reference's sentence about it, letter by letter. With the
documents it also counts by how many words of its paper are before the fact: the paper's first words say whether what
follows is right. Files of the same name are the seeds of one system: their row has the mean and the range.
"""

import argparse
import re
import sys
from pathlib import Path

from fairseq_poolingformer.preprocess.facts import FIELDS, GOSSIP, REGISTER, SUMMARIES, WORDINGS

from fairseq_poolingformer.text.table import aligned

_PATTERNS = {field: re.compile(re.escape(text).replace(r"\{\}", "([^.]+)")) for field, text in SUMMARIES.items()}
_HEADS = re.compile("|".join(map(re.escape, REGISTER + GOSSIP)))
DISTANCES = {"0-20 words": 20, "21-60": 60, "61-140": 140, "more": 10**9}


def read_facts(summary: str) -> dict[str, str]:
    """Values by field, those that the summary has a sentence for."""
    found = {field: pattern.search(summary) for field, pattern in _PATTERNS.items()}
    return {field: match.group(1) for field, match in found.items() if match}


def words_before(document: str, reference: str) -> dict[str, int]:
    """For each fact of a reference, the words between the head of its paper in the register and the fact itself."""
    kind = reference.split(".")[0].split()[-1]
    heads = [(match.start(), match.group() in REGISTER) for match in _HEADS.finditer(document)]
    found = {}
    for field, value in read_facts(reference).items():
        for wording in WORDINGS[field]:
            for match in re.finditer(re.escape(wording.format(value, kind=kind)), document):
                head, is_right = max(head for head in heads if head[0] < match.start())
                if is_right:
                    found[field] = len(document[head : match.start()].split())
    return found


def groups_of(reference: str, document: str | None) -> dict[str, list[str]]:
    """The groups in which each fact of a reference is counted: its field, ``all``, and its distance from the head."""
    groups = {field: [field, "all"] for field in read_facts(reference)}
    distances = words_before(document, reference) if document is not None else {}
    for field, words in distances.items():
        groups[field].append(next(name for name, limit in DISTANCES.items() if words <= limit))
    return groups


def shares_right(
    hypotheses: list[str], references: list[str], documents: list[str] | None = None
) -> dict[str, tuple[float, int]]:
    """The share of the references' facts that the hypotheses have right, and how many there are, by group."""
    count = {name: [0, 0] for name in (*FIELDS, "all", *(DISTANCES if documents else ()))}
    for hypothesis, reference, document in zip(
        hypotheses, references, documents or [None] * len(references), strict=True
    ):
        said, wanted = read_facts(hypothesis), read_facts(reference)
        for field, groups in groups_of(reference, document).items():
            for group in groups:
                count[group][0] += said.get(field) == wanted[field]
                count[group][1] += 1
    return {name: (right / max(1, total), total) for name, (right, total) in count.items()}


def describe(percentages: tuple[float, ...]) -> str:
    """The mean, and of several the least and the greatest."""
    mean = f"{sum(percentages) / len(percentages):.0f}"
    return mean if len(percentages) == 1 else f"{mean} [{min(percentages):.0f}, {max(percentages):.0f}]"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("summaries", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--documents", type=Path)
    args = parser.parse_args()
    references = args.references.read_text(encoding="utf-8").splitlines()
    documents = args.documents.read_text(encoding="utf-8").splitlines() if args.documents else None
    sizes: dict[str, int] = {}
    found: dict[str, list[list[float]]] = {}
    for argument in args.summaries:
        name, _, path = argument.rpartition("=")
        hypotheses = Path(path).read_text(encoding="utf-8").splitlines()
        if len(hypotheses) != len(references):
            parser.error(f"{path} has {len(hypotheses)} lines, {args.references} {len(references)}")
        shares = shares_right(hypotheses, references, documents)
        sizes = {group: total for group, (_, total) in shares.items()}
        found.setdefault(name, []).append([100 * share for share, _ in shares.values()])
    rows = [["facts right, %", *sizes], ["facts", *map(str, sizes.values())]]
    rows += [[name, *map(describe, zip(*seeds, strict=True))] for name, seeds in found.items()]
    print(aligned(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

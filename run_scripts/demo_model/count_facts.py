"""How many facts summaries state right, exactly, of documents that ``preprocess.facts`` made.

    python count_facts.py --references R.txt --documents D.txt [--baseline NAME] NAME=SUMMARIES.txt …

One text a line. A fact is right where the summary has the reference's sentence about it, letter by letter. Files of the
same name are the seeds of one system: their row has the mean and the range. The row below has the interval that holds
95 % of such means over documents drawn anew (bootstrap); with ``--baseline`` another has the difference from a system
of that name on the same documents. Where that interval has 0, neither is better as far as these documents tell.

With the documents it also counts by the words between a fact and what decides about it: the head of its paper in the
register or, since that settles the same, the head of the paper in which gossip states the same field, whichever is
nearer to its statement. A control sees so many words before a statement (``--seen``) and guesses where no head is among
them. Wrong facts are counted by where their value is from.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fairseq_poolingformer.preprocess.facts import FIELDS, GOSSIP, REGISTER, SUMMARIES, WORDINGS

from fairseq_poolingformer.command import aligned

_PATTERNS = {field: re.compile(re.escape(text).replace(r"\{\}", "([^.]+)")) for field, text in SUMMARIES.items()}
_HEADS = re.compile("|".join(map(re.escape, REGISTER + GOSSIP)))
_VALUE = r"([\w-]+(?: [A-Z]\w+)?)"
DISTANCES = {"0-30 words": 30, "31-60": 60, "61-120": 120, "121-240": 240, "more": 10**9}
KINDS = ("right", "gossip's value", "another of the document", "not in the document", "not stated")
RESAMPLES = 2000

Distances = dict[str, int]  # by field, words


def read_facts(summary: str) -> dict[str, str]:
    """Values by field, those that the summary has a sentence for."""
    found = {field: pattern.search(summary) for field, pattern in _PATTERNS.items()}
    return {field: match.group(1) for field, match in found.items() if match}


def read_papers(document: str, reference: str) -> tuple[Distances, dict[str, str]]:
    """For each fact of a reference the words from the nearer deciding head to its statement, and gossip's value."""
    kind = reference.split(".")[0].split()[-1]
    heads = [(match.start(), match.group() in REGISTER) for match in _HEADS.finditer(document)]
    distances: Distances = {}
    gossip: dict[str, str] = {}
    for field, value in read_facts(reference).items():
        for wording in WORDINGS[field]:
            pattern = re.escape(wording.format("VALUE", kind=kind)).replace("VALUE", _VALUE)
            for match in re.finditer(pattern, document):
                head, in_register = max((one for one in heads if one[0] < match.start()), default=(0, None))
                if in_register != (match.group(1) == value):
                    continue  # gossip that happens to be right, or no paper at all
                words = len(document[head : match.start()].split())
                distances[field] = min(words, distances.get(field, words))
                if not in_register:
                    gossip[field] = match.group(1)
    return distances, gossip


class Facts:
    """The facts of some references.

    Attributes:
        groups: names of the groups that facts are counted in: the fields, ``all`` and, with documents, distances.
        total: (D, G) how many facts of each document are in each group.
    """

    def __init__(self, references: Sequence[str], documents: Sequence[str] | None = None) -> None:
        self.references, self.documents = references, documents
        self.wanted = [read_facts(reference) for reference in references]
        papers = map(read_papers, documents, references) if documents else [({}, {}) for _ in references]
        self.distances, self.gossip = zip(*papers, strict=True)
        self.groups = (*FIELDS, "all", *(DISTANCES if documents else ()))
        self.total = self.count([dict.fromkeys(wanted, 1.0) for wanted in self.wanted])

    def count(self, weights: Sequence[dict[str, float]]) -> np.ndarray:
        """The sums by document and group, (D, G), of weights by field of each document's facts."""
        sums = np.zeros((len(self.references), len(self.groups)))
        for row, by_field, distances in zip(sums, weights, self.distances, strict=True):
            for field, weight in by_field.items():
                names = [field, "all"]
                if field in distances:
                    names.append(next(name for name, limit in DISTANCES.items() if distances[field] <= limit))
                row[[self.groups.index(name) for name in names]] += weight
        return sums

    def right(self, hypotheses: Sequence[str]) -> np.ndarray:
        """How many facts the hypotheses have right, (D, G)."""
        said = map(read_facts, hypotheses)
        return self.count(
            [
                {field: float(said.get(field) == value) for field, value in wanted.items()}
                for said, wanted in zip(said, self.wanted, strict=True)
            ]
        )

    def control(self, words: int) -> np.ndarray:
        """The facts, (D, G), that one has right who sees so many words before a statement, and else guesses."""
        return self.count(
            [
                {field: 1.0 if found.get(field, words + 1) <= words else 0.5 for field in wanted}
                for found, wanted in zip(self.distances, self.wanted, strict=True)
            ]
        )

    def kinds(self, hypotheses: Sequence[str]) -> Counter[str]:
        """How many facts are right, and of the others how many have which kind of value."""
        found: Counter[str] = Counter()
        for number, hypothesis in enumerate(hypotheses):
            said, document = read_facts(hypothesis), self.documents[number]
            for field, value in self.wanted[number].items():
                if field not in said:
                    found["not stated"] += 1
                elif said[field] == value:
                    found["right"] += 1
                elif said[field] == self.gossip[number].get(field):
                    found["gossip's value"] += 1
                else:
                    is_there = re.search(rf"\b{re.escape(said[field])}\b", document)
                    found["another of the document" if is_there else "not in the document"] += 1
        return found


def shares_right(
    hypotheses: Sequence[str], references: Sequence[str], documents: Sequence[str] | None = None
) -> dict[str, tuple[float, int]]:
    """The share of the references' facts that the hypotheses have right, and how many there are, by group."""
    facts = Facts(references, documents)
    right, total = facts.right(hypotheses).sum(0), facts.total.sum(0)
    return {name: (float(n / max(1, of)), int(of)) for name, n, of in zip(facts.groups, right, total, strict=True)}


def shares(right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Percentages, NaN where there are no facts."""
    return 100 * np.divide(right, total, out=np.full(np.broadcast(right, total).shape, np.nan), where=total > 0)


def resampled(right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Percentages by group, (RESAMPLES, G), of as many documents drawn with replacement; the same ones in each call."""
    documents = len(total)
    drawn = np.random.default_rng(0).multinomial(documents, [1 / documents] * documents, size=RESAMPLES)
    return shares(drawn @ right, drawn @ total)


def describe(percentages: Sequence[float]) -> str:
    """The mean, and of several the least and the greatest; a dash where there are no facts."""
    if np.isnan(percentages[0]):
        return "-"
    mean = f"{sum(percentages) / len(percentages):.0f}"
    return mean if len(percentages) == 1 else f"{mean} [{min(percentages):.0f}, {max(percentages):.0f}]"


def interval(samples: np.ndarray, form: str = ".0f") -> str:
    """The middle 95 %."""
    known = samples[~np.isnan(samples)]
    return "{:{form}} to {:{form}}".format(*np.percentile(known, [2.5, 97.5]), form=form) if len(known) else "-"


def tables_of_shares(facts: Facts, systems: dict[str, list[list[str]]], seen: int, baseline: str | None) -> str:
    """The percentages of facts right by distance, with intervals and differences from a baseline, and by field."""
    size, first = facts.total.sum(0), len(FIELDS)
    rows = [["facts right, %", *facts.groups], ["facts", *(f"{count:.0f}" for count in size)]]
    by_field = [row[: first + 1] for row in rows]
    rows = [[row[0], *row[first + 1 :]] for row in rows]
    if facts.documents:
        control = shares(facts.control(seen).sum(0), size)[first:]
        rows.append([f"sees {seen} words, else guesses", *(describe([share]) for share in control)])
    means, samples = {}, {}
    for name, seeds in systems.items():
        right = np.array([facts.right(hypotheses) for hypotheses in seeds])  # (seeds, D, G)
        found = shares(right.sum(1), size)
        cells = [describe(seeds) for seeds in found.T]
        by_field.append([name, *cells[:first]])
        means[name], samples[name] = found.mean(0)[first:], resampled(right.mean(0), facts.total)[:, first:]
        rows += [[name, *cells[first:]], ["  95 %", *map(interval, samples[name].T)]]
    for name in samples:
        if baseline is not None and name != baseline:
            spans = [interval(column, "+.1f") for column in (samples[name] - samples[baseline]).T]
            cells = zip(means[name] - means[baseline], spans, strict=True)
            rows.append([f"{name} - {baseline}", *("-" if np.isnan(m) else f"{m:+.1f} ({s})" for m, s in cells)])
    return f"{aligned(rows)}\n\n{aligned(by_field)}"


def table_of_kinds(facts: Facts, systems: dict[str, list[list[str]]]) -> str:
    """How many facts of a system are right and of what kind its errors are, means of its seeds."""
    rows = [["facts", *KINDS]]
    for name, seeds in systems.items():
        found = sum(map(facts.kinds, seeds), Counter())
        rows.append([name, *(f"{found[kind] / len(seeds):.0f}" for kind in KINDS)])
    return aligned(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("summaries", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--baseline", metavar="NAME", help="the system that the others are compared with")
    parser.add_argument("--seen", type=int, default=30, metavar="WORDS", help="the control's (default: %(default)s)")
    args = parser.parse_args()
    references = args.references.read_text(encoding="utf-8").splitlines()
    documents = args.documents.read_text(encoding="utf-8").splitlines() if args.documents else None
    systems: dict[str, list[list[str]]] = {}
    for argument in args.summaries:
        name, _, path = argument.rpartition("=")
        hypotheses = Path(path).read_text(encoding="utf-8").splitlines()
        if len(hypotheses) != len(references):
            parser.error(f"{path} has {len(hypotheses)} lines, {args.references} {len(references)}")
        systems.setdefault(name, []).append(hypotheses)
    if args.baseline is not None and args.baseline not in systems:
        parser.error(f"--baseline {args.baseline}: there are {', '.join(systems)}")
    facts = Facts(references, documents)
    print(tables_of_shares(facts, systems, args.seen, args.baseline))
    if documents:
        near = sum(distance <= args.seen for found in facts.distances for distance in found.values())
        share = near / max(1, sum(map(len, facts.wanted)))
        print(f"\n{share:.0%} of the facts have a deciding head within {args.seen} words.\n")
        print(table_of_kinds(facts, systems))
    return 0


if __name__ == "__main__":
    sys.exit(main())

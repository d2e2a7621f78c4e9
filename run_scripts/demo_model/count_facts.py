"""How many facts summaries state right, exactly, of documents that ``preprocess.facts`` made.

    python count_facts.py NAME=SUMMARIES.txt … --references R.txt … --documents D.txt … [--baseline NAME]

One text a line. A fact is right where the summary has the reference's sentence about it, letter by letter. Several
references are several corpora: the files of a name are of these, in this order, and its row counts the facts of all;
the row "corpora" has the least and the greatest percentage of one. The row below a figure has the interval that holds
95 % of such figures over documents drawn anew (bootstrap). The difference from the system named by ``--baseline`` is of
the same documents: where its interval has 0, neither is better as far as these documents tell.

With the documents it also counts by the words between a fact and what decides about it: the head of its paper in the
register or, since that settles the same, the head of the paper in which gossip states the same field, whichever is
nearer to its statement. A control sees so many words before a statement (``--seen``) and guesses where no head is among
them. Wrong facts are counted by where their value is from. The tables have 80 columns.
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
DISTANCES = {"0-30": 30, "31-60": 60, "61-120": 120, "121-240": 240, "more": 10**9}
KINDS = ("right", "gossip's value", "of the document", "invented", "not stated")
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
                    found["of the document" if is_there else "invented"] += 1
        return found


def shares(right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Percentages, NaN where there are no facts."""
    return 100 * np.divide(right, total, out=np.full(np.broadcast(right, total).shape, np.nan), where=total > 0)


def resampled(right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Percentages by group, (RESAMPLES, G), of as many documents drawn with replacement; the same ones in each call."""
    documents = len(total)
    drawn = np.random.default_rng(0).multinomial(documents, [1 / documents] * documents, size=RESAMPLES)
    return shares(drawn @ right, drawn @ total)


def describe(percentage: float, form: str = ".0f") -> str:
    """A percentage; a dash where there are no facts."""
    return "-" if np.isnan(percentage) else f"{percentage:{form}}"


def span(values: np.ndarray, *percentiles: float) -> str:
    """Two percentiles of the values that there are."""
    known = values[~np.isnan(values)]
    return "{:.0f}, {:.0f}".format(*np.percentile(known, percentiles)) if len(known) else "-"


def tables_of_shares(
    corpora: Sequence[Facts], systems: dict[str, list[list[str]]], seen: int, baseline: str | None
) -> str:
    """The percentages of facts right by distance, differences from a baseline first, and by field."""
    first, groups = len(FIELDS), corpora[0].groups
    total = np.concatenate([facts.total for facts in corpora])
    size = total.sum(0)
    means, samples, rows_of, by_field = {}, {}, {}, [["facts right, %", *groups[:first]]]
    for name, files in systems.items():
        right = [facts.right(hypotheses) for facts, hypotheses in zip(corpora, files, strict=True)]  # (D, G) each
        means[name] = shares(sum(counts.sum(0) for counts in right), size)
        samples[name] = resampled(np.concatenate(right), total)[:, first:]
        by_field.append([name, *map(describe, means[name][:first])])
        rows_of[name] = [[f"  {name}", *map(describe, means[name][first:])]]
        rows_of[name].append(["    95 %", *(span(column, 2.5, 97.5) for column in samples[name].T)])
        if len(corpora) > 1:
            each = [shares(counts.sum(0), facts.total.sum(0)) for counts, facts in zip(right, corpora, strict=True)]
            rows_of[name].append(["    corpora", *(span(column, 0, 100) for column in np.array(each).T[first:])])
    rows = [["words between" if corpora[0].documents else "", *groups[first:]]]
    for name in [name for name in samples if baseline in samples and name != baseline]:
        differences = means[name][first:] - means[baseline][first:]
        rows.append([f"  {name}", *(describe(difference, "+.1f") for difference in differences)])
        spans = (span(column, 2.5, 97.5) for column in (samples[name] - samples[baseline]).T)
        rows.append(["    95 %", *spans])
    ahead = len(rows)
    for row in rows_of.values():
        rows += row
    if corpora[0].documents:
        control = shares(sum(facts.control(seen).sum(0) for facts in corpora), size)
        rows.append([f"  sees {seen} words", *map(describe, control[first:])])
    rows.append(["number of facts", *(f"{count:.0f}" for count in size[first:])])
    head, *lines = aligned(rows).split("\n")
    lines.insert(ahead - 1, "facts right, %")
    if ahead > 1:
        lines.insert(0, f"points ahead of {baseline}")
    by_field.append(["number of facts", *(f"{count:.0f}" for count in size[:first])])
    return "\n".join([head, *lines]) + "\n\n" + aligned(by_field)


def table_of_kinds(corpora: Sequence[Facts], systems: dict[str, list[list[str]]]) -> str:
    """How many facts of a system are right and of what kind its errors are."""
    rows = [["facts", *KINDS]]
    for name, files in systems.items():
        kinds = sum((facts.kinds(hypotheses) for facts, hypotheses in zip(corpora, files, strict=True)), Counter())
        rows.append([name, *(str(kinds[kind]) for kind in KINDS)])
    return aligned(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("summaries", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--references", type=Path, nargs="+", required=True, metavar="FILE", help="of each corpus")
    parser.add_argument("--documents", type=Path, nargs="+", metavar="FILE", help="of each corpus")
    parser.add_argument("--baseline", metavar="NAME", help="the system that the others are compared with")
    parser.add_argument("--seen", type=int, default=30, metavar="WORDS", help="the control's (default: %(default)s)")
    args = parser.parse_args()
    references = list(map(read_lines, args.references))
    documents = list(map(read_lines, args.documents)) if args.documents else [None] * len(references)
    systems: dict[str, list[list[str]]] = {}
    for argument in args.summaries:
        name, _, path = argument.rpartition("=")
        systems.setdefault(name, []).append(read_lines(Path(path)))
    for name, files in systems.items():
        counts = [list(map(len, texts)) for texts in (files, references)]
        if counts[0] != counts[1]:
            parser.error(f"{name} has files of {counts[0]} lines, and the references {counts[1]}")
    if args.baseline is not None and args.baseline not in systems:
        parser.error(f"--baseline {args.baseline}: there are {', '.join(systems)}")
    corpora = list(map(Facts, references, documents))
    print(tables_of_shares(corpora, systems, args.seen, args.baseline))
    if args.documents:
        near = sum(distance <= args.seen for facts in corpora for of in facts.distances for distance in of.values())
        share = near / max(1, sum(len(wanted) for facts in corpora for wanted in facts.wanted))
        print(f"\n{share:.0%} of the facts have a deciding head within {args.seen} words.\n")
        print(table_of_kinds(corpora, systems))
    return 0


def read_lines(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    sys.exit(main())

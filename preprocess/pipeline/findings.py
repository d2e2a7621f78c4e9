"""Likely faults of a corpus and their remedies, in words: ``--report``.

One pass looks at the examples and keeps 24 bytes of each, digests and lengths.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairseq_poolingformer.text.labels import AMOUNT

from .records import Example, Reject, parsed
from .report import overlaps, progress

SHOWN = 3  # examples named in a finding
_MOST = 0.5  # of a split, from which on a column is taken for another than it should be
_OF_REJECTS = "correct them, name another key or column, or leave them out with a larger --max-reject-fraction"


@dataclass
class SplitLook:
    """Summary of a split's examples, in their order."""

    # 64-bit digests of the texts after folding case and white space
    inputs: array = field(default_factory=lambda: array("Q"))
    outputs: array = field(default_factory=lambda: array("Q"))
    sizes: array = field(default_factory=lambda: array("I"))  # characters
    output_sizes: array = field(default_factory=lambda: array("I"))
    marked: dict[str, list[str]] = field(default_factory=dict)  # the first examples of each suspicious kind
    counts: Counter[str] = field(default_factory=Counter)  # how many there are of each
    labels: Counter[str] = field(default_factory=Counter)  # how often each occurs
    # reasons, up to their first colon, each with the first record that has it
    rejects: dict[str, str] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)  # how many records each of these has

    def mark(self, kind: str, name: str) -> None:
        """Count an example as one of a kind."""
        self.counts[kind] += 1
        if len(names := self.marked.setdefault(kind, [])) < SHOWN:
            names.append(name)

    def add(self, example: Example, outputs: int, has_classes: bool = True) -> None:
        """Take an example whose last texts are to be learned; its labels are counted where they are classes."""
        count = len(example.texts) - outputs
        inputs = "\n".join(example.texts[:count])
        label = getattr(example, "label", None) if has_classes else None
        self.labels.update(label if isinstance(label, tuple) else () if label is None else (label,))
        folded = fold(inputs), fold("\n".join(example.texts[count:]))
        for digests, sizes, text in zip(
            (self.inputs, self.outputs), (self.sizes, self.output_sizes), folded, strict=True
        ):
            digests.append(digest(text))
            sizes.append(min(len(text), 2**32 - 1))
        if " " not in folded[0]:
            self.mark("one word", example.id)
        if outputs:
            if folded[0] == folded[1]:
                self.mark("identical", example.id)
            if " " not in folded[1]:
                self.mark("output of one word", example.id)

    def reject(self, reason: str, place: str) -> None:
        """Take a record that cannot be used."""
        kind = reason.partition(":")[0]
        self.rejected[kind] += 1
        self.rejects.setdefault(kind, f"{place}: {reason}"[:300])


def fold(text: str) -> str:
    """The text by which duplicates are told: without differences in case and white space."""
    return " ".join(text.split()).casefold()


def digest(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def look(corpus, limit: int | None = None, kept: dict[str, list[Example]] | None = None) -> dict[str, SplitLook]:
    """Look at every example of a corpus, and keep those of each split, with what is to be learned, if asked for."""
    outputs, has_classes = len(corpus.layout.outputs), corpus.entries.get("problem_type") != AMOUNT
    found = {}
    for split, records in corpus.splits.items():
        seen = found[split] = SplitLook()
        parse = corpus.parse if kept is not None else records.parse or corpus.parse  # a test split's has no answers
        with progress(f"{split}, report", records.size) as advance:
            for record in records.records():
                advance(record.progress)
                example = parsed(record, parse)
                if isinstance(example, Reject):
                    seen.reject(example.reason, f"{record.file}, line {record.line}")
                elif isinstance(example, Example):
                    seen.add(example, outputs, has_classes)
                    if kept is not None:
                        kept.setdefault(split, []).append(example)
                    if split == "train" and len(seen.inputs) == limit:
                        break
    return found


@dataclass(frozen=True)
class Finding:
    """Something that is likely to be wrong."""

    kind: str
    text: str  # what was found, with counts and places
    remedy: str  # what to do


def findings(corpus, looks: dict[str, SplitLook]) -> list[Finding]:
    """Likely faults of a corpus."""
    lines = [*_shared(looks)]
    for split, look in looks.items():
        lines += [*_of_rejects(split, look), *_duplicates(split, look)]
        if len(look.inputs):
            lines += _texts(split, look, bool(corpus.layout.outputs))
    if "train" in looks:
        lines += _unknown_labels(looks)
    return lines


def as_text(name: str, items: Sequence[Finding]) -> list[str]:
    """The findings as lines."""
    if not items:
        return [f"{name}: nothing suspicious was found"]
    head = f"{name}: {len(items)} finding{'s' * (len(items) > 1)}"
    lines = (line for finding in items for line in (f"- {finding.kind}: {finding.text}", f"  To do: {finding.remedy}."))
    return [head, *map(printable, lines)]


def printable(text: str) -> str:
    """A text without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _numbers(places: np.ndarray) -> str:
    """Some examples, by their numbers in the order of the input, from 1."""
    return ", ".join(f"number {place + 1:,}" for place in places[:SHOWN].tolist())


def _of(count: int, total: int, what: str = "documents") -> str:
    return f"{count:,} of {total:,} {what} ({100 * count / max(total, 1):.1f} %)"


def _shared(looks: dict[str, SplitLook]) -> Iterator[Finding]:
    for first, second, places in overlaps({split: look.inputs for split, look in looks.items()}):
        names = _numbers(places)
        share = _of(len(places), len(looks[second].inputs), f"documents of {second}")
        yield Finding(
            "documents in several splits",
            f"{share} are in {first}, too, such as {names}",
            f"remove them from {first}; figures on {second} would be too good",
        )


def _duplicates(split: str, look: SplitLook) -> Iterator[Finding]:
    digests = np.asarray(look.inputs)
    _, first, group = np.unique(digests, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group] != np.arange(len(digests)))
    if len(again):
        yield Finding(
            "duplicates",
            f"{split}: {_of(len(again), len(digests))} repeat another one, such as {_numbers(again)}",
            "keep one of each, unless they are meant to count more",
        )


def _texts(split: str, look: SplitLook, has_outputs: bool) -> Iterator[Finding]:
    total = len(look.inputs)

    def finding(kind: str, mark: str, text: str, remedy: str) -> Finding:
        names = ", ".join(look.marked[mark])
        return Finding(kind, f"{split}: {_of(look.counts[mark], total)} {text}, such as {names}", remedy)

    for mark, text, part in (
        ("one word", "are a single word, as ids and links are", "text"),
        ("output of one word", "have a single word as summary, as ids, links and labels are", "summary"),
    ):
        if look.counts[mark] > _MOST * total:
            yield finding("wrong column", mark, text, f"name the key or column of the {part}")
    if not has_outputs:
        return
    if look.counts["identical"]:
        yield finding("identical summaries", "identical", "have themselves as summary", "remove them")
    medians = np.median(np.asarray(look.sizes)), np.median(np.asarray(look.output_sizes))
    if medians[0] < medians[1]:
        yield Finding(
            "wrong column",
            f"{split}: half of the documents have up to {medians[0]:,.0f} characters, half of the summaries up to "
            f"{medians[1]:,.0f}",
            "exchange the keys or columns, if they are the wrong way round",
        )
    values, counts = np.unique(np.asarray(look.outputs), return_counts=True)
    if total > 2 and counts.max() > max(2, 0.01 * total):
        number = int(np.flatnonzero(np.asarray(look.outputs) == values[counts.argmax()])[0])
        yield Finding(
            "the same summary",
            f"{split}: {_of(int(counts.max()), total)} have one and the same summary, first number {number + 1:,}",
            "remove what is no summary, such as 'not available'",
        )


def _unknown_labels(looks: dict[str, SplitLook]) -> Iterator[Finding]:
    known = looks["train"].labels
    for split, look in looks.items():
        if unknown := sorted(look.labels.keys() - known.keys()):
            names = ", ".join(unknown[:SHOWN])
            yield Finding("labels that train lacks", f"{split}: {names}", "give train examples of them")


def _of_rejects(split: str, look: SplitLook) -> Iterator[Finding]:
    total = look.rejected.total() + len(look.inputs)
    if not total:
        yield Finding("no records", f"{split}: there are no records in it", "name files that have some")
    for kind, count in look.rejected.most_common():
        text = f"{split}: {_of(count, total, 'records')} are unusable, first {look.rejects[kind]}"
        yield Finding("rejected records", text, _OF_REJECTS)

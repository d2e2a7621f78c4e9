"""A look at the examples of a corpus: one pass that keeps 24 bytes of each, digests and lengths."""

import hashlib
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field

from fairseq_poolingformer.text.labels import AMOUNT

from .progress import progress
from .records import Example, Reject, parsed

SHOWN = 3  # examples named in a finding
_JSON = re.compile(r"\s*(?:\[\s*[\[{\"']|\{\s*[\"'])")


@dataclass
class SplitLook:
    """What is kept of a split's examples, in their order.

    Attributes:
        inputs, outputs: 64-bit digests of the texts after folding case and white space.
        sizes, output_sizes: characters.
        marked: how many examples have what makes them suspicious, and the first of them.
        labels: how often each occurs.
        rejects: reasons, up to their first colon, each with the first record that has it.
        rejected: how many records each of these has.
    """

    inputs: array = field(default_factory=lambda: array("Q"))
    outputs: array = field(default_factory=lambda: array("Q"))
    sizes: array = field(default_factory=lambda: array("I"))
    output_sizes: array = field(default_factory=lambda: array("I"))
    marked: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rejects: dict[str, str] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)

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
        labels = label if isinstance(label, tuple) else () if label is None else (label,)
        output = "\n".join(example.texts[count:] if outputs else labels)
        folded = fold(inputs), fold(output)
        for digests, sizes, text in zip(
            (self.inputs, self.outputs), (self.sizes, self.output_sizes), folded, strict=True
        ):
            digests.append(digest(text))
            sizes.append(min(len(text), 2**32 - 1))
        self.labels.update(labels)
        if is_json(inputs) or is_json(output):
            self.mark("json", example.id)
        if " " not in folded[0]:
            self.mark("one word", example.id)
        if outputs:
            if folded[0] == folded[1]:
                self.mark("identical", example.id)
            elif len(folded[1]) >= len(folded[0]):
                self.mark("longer", example.id)
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


def is_json(text: str) -> bool:
    """Whether a text looks like a list or an object of JSON or Python, rather than like language."""
    return _JSON.match(text) is not None and text.rstrip().endswith(("]", "}"))


def look(corpus, limit: int | None = None) -> dict[str, SplitLook]:
    """Look at every example of a corpus."""
    outputs, has_classes = len(corpus.layout.outputs), corpus.entries.get("problem_type") != AMOUNT
    found = {}
    for split, records in corpus.splits.items():
        seen = found[split] = SplitLook()
        parse = records.parse or corpus.parse
        with progress(f"{split}, report", records.size) as advance:
            for record in records.records():
                advance(record.progress)
                example = parsed(record, parse)
                if isinstance(example, Reject):
                    seen.reject(example.reason, f"{record.file}, line {record.line}")
                elif isinstance(example, Example):
                    seen.add(example, outputs, has_classes)
                    if split == "train" and len(seen.inputs) == limit:
                        break
    return found

"""A look at a corpus before anything is trained on it: what is likely to be wrong, and what to do about it.

One pass over the examples keeps 24 bytes of each: digests and lengths.
"""

import hashlib
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .progress import progress
from .records import Example, Reject, parsed
from .report import Made, unseen_tokens

_SHOWN = 3  # examples named in a finding
_MOST = 0.5  # of a split, from which on a column is taken for another than it should be
_SAME_LABEL = 0.95
_JSON = re.compile(r"\s*(?:\[\s*[\[{\"']|\{\s*[\"'])")
_REMEDIES = {  # of rejects, by the beginning of their reason
    "empty": "remove these records, or name another key or column",
    "JSON inside": "name a key inside of it, such as --summary-key summary.text",
    "no article": "name the key or column with --article-key",
    "no summary": "name the key or column with --summary-key",
    "nested sections": "name the keys at any depth, a.*.b",
    "not UTF-8": "convert the file, such as with iconv -f LATIN1 -t UTF-8",
    "ragged row": "write the table again, with quotation marks around fields that have line breaks or the separator",
    "too long": "give a larger --max-line-bytes if this is one document",
}


@dataclass(frozen=True)
class Finding:
    """Something that is likely to be wrong.

    Attributes:
        kind: its name.
        text: what was found, with counts and places.
        remedy: what to do.
    """

    kind: str
    text: str
    remedy: str


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
        if len(names := self.marked.setdefault(kind, [])) < _SHOWN:
            names.append(name)

    def add(self, example: Example, outputs: int) -> None:
        """Take an example whose last texts are to be learned."""
        count = len(example.texts) - outputs
        inputs = "\n".join(example.texts[:count])
        label = getattr(example, "label", None)
        output = "\n".join(example.texts[count:]) if outputs else label or ""
        folded = fold(inputs), fold(output)
        for digests, sizes, text in zip(
            (self.inputs, self.outputs), (self.sizes, self.output_sizes), folded, strict=True
        ):
            digests.append(digest(text))
            sizes.append(min(len(text), 2**32 - 1))
        if label is not None:
            self.labels[label] += 1
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
    """Look at every example of a corpus.

    Args:
        corpus: a :class:`~preprocess.pipeline.run.Corpus`.
        limit: of the examples of train.
    """
    outputs = len(corpus.layout.outputs)
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
                    seen.add(example, outputs)
                    if split == "train" and len(seen.inputs) == limit:
                        break
    return found


def names_of(corpus, split: str, numbers: Sequence[int]) -> list[str]:
    """The ids of a split's examples, given their ascending numbers; reads the split up to the last of them."""
    records = corpus.splits[split]
    parse = records.parse or corpus.parse
    examples = (parsed(record, parse) for record in records.records())
    good = (example.id for example in examples if isinstance(example, Example))
    wanted = set(numbers)
    found = (name for number, name in enumerate(good) if number in wanted)
    return list(itertools.islice(found, len(wanted)))


def findings(corpus, found: dict[str, SplitLook], made: Made | None = None) -> list[Finding]:
    """What is likely to be wrong with a corpus.

    Args:
        corpus: the corpus.
        found: what :func:`look` returned for it.
        made: its data folder, where it could be made.
    """
    lines = [*_shared(corpus, found)]
    for split, seen in found.items():
        lines += [*_of_rejects(split, seen), *_duplicates(corpus, split, seen)]
        if len(seen.inputs):
            lines += [*_texts(split, seen, bool(corpus.layout.outputs)), *_labels(split, seen)]
    if "train" in found:
        lines += _unknown_labels(found)
    if made is not None:
        lines += [*_cut(made), *_unseen(made)]
    return lines


def _of(count: int, total: int, what: str = "documents") -> str:
    return f"{count:,} of {total:,} {what} ({100 * count / max(total, 1):.1f} %)"


def _shared(corpus, found: dict[str, SplitLook]) -> Iterator[Finding]:
    for first, second in itertools.combinations(found, 2):
        others = np.asarray(found[second].inputs)
        places = np.flatnonzero(np.isin(others, np.asarray(found[first].inputs)))
        if len(places):
            names = ", ".join(names_of(corpus, second, places[:_SHOWN].tolist()))
            yield Finding(
                "documents in several splits",
                f"{_of(len(places), len(others), f'documents of {second}')} are in {first}, too, such as {names}",
                f"remove them from {first}; figures on {second} would be too good",
            )


def _duplicates(corpus, split: str, seen: SplitLook) -> Iterator[Finding]:
    digests = np.asarray(seen.inputs)
    _, first, group = np.unique(digests, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group] != np.arange(len(digests)))
    if not len(again):
        return
    pairs = np.stack([digests, np.asarray(seen.outputs)], 1)
    same = len(digests) - len(np.unique(pairs, axis=0))
    names = ", ".join(names_of(corpus, split, again[:_SHOWN].tolist()))
    other = f"; {len(again) - same:,} with another summary or label" if len(again) > same else ""
    yield Finding(
        "duplicates",
        f"{split}: {_of(len(again), len(digests))} repeat another one, such as {names}{other}",
        "keep one of each, unless they are meant to count more",
    )


def _texts(split: str, seen: SplitLook, has_outputs: bool) -> Iterator[Finding]:
    total = len(seen.inputs)

    def finding(kind: str, mark: str, text: str, remedy: str) -> Finding:
        names = ", ".join(seen.marked[mark])
        return Finding(kind, f"{split}: {_of(seen.counts[mark], total)} {text}, such as {names}", remedy)

    if seen.counts["json"]:
        remedy = "name a key inside of it, a.b or a.*.b, or take the text out of it first"
        yield finding("JSON inside text", "json", "have a list or an object as text, not language", remedy)
    if seen.counts["one word"] > _MOST * total:
        yield finding(
            "wrong column", "one word", "are a single word, as ids and links are", "name the key or column of the text"
        )
    if not has_outputs:
        return
    if seen.counts["output of one word"] > _MOST * total:
        yield finding(
            "wrong column",
            "output of one word",
            "have a single word as summary, as ids, links and labels are",
            "name the key or column of the summary with --summary-key",
        )
    if seen.counts["identical"]:
        yield finding("identical summaries", "identical", "have themselves as summary", "remove them")
    medians = np.median(np.asarray(seen.sizes)), np.median(np.asarray(seen.output_sizes))
    if medians[0] < medians[1]:
        yield Finding(
            "wrong column",
            f"{split}: half of the documents have up to {medians[0]:,.0f} characters, half of the summaries up to "
            f"{medians[1]:,.0f}",
            "exchange --article-key and --summary-key, if they are the wrong way round",
        )
    elif seen.counts["longer"]:
        remedy = "look at them, and remove those that are wrong"
        yield finding("summaries longer than documents", "longer", "are not longer than their summary", remedy)
    values, counts = np.unique(np.asarray(seen.outputs), return_counts=True)
    if total > 2 and counts.max() > max(2, 0.01 * total):
        number = int(np.flatnonzero(np.asarray(seen.outputs) == values[counts.argmax()])[0])
        yield Finding(
            "the same summary",
            f"{split}: {_of(int(counts.max()), total)} have one and the same summary, first number {number + 1:,}",
            "remove what is no summary, such as 'not available'",
        )


def _labels(split: str, seen: SplitLook) -> Iterator[Finding]:
    total = seen.labels.total()
    if total and (most := seen.labels.most_common(1)[0])[1] > _SAME_LABEL * total:
        yield Finding(
            "one label",
            f"{split}: {_of(most[1], total)} have the label {most[0]}",
            "do not read accuracy, which this label alone has; read F1",
        )


def _unknown_labels(found: dict[str, SplitLook]) -> Iterator[Finding]:
    known = found["train"].labels
    for split, seen in found.items():
        if unknown := sorted(seen.labels.keys() - known.keys()):
            names = ", ".join(unknown[:_SHOWN])
            yield Finding("labels that train lacks", f"{split}: {names}", "give train examples of them")


def _of_rejects(split: str, seen: SplitLook) -> Iterator[Finding]:
    total = seen.rejected.total() + len(seen.inputs)
    for kind, count in seen.rejected.most_common():
        remedy = next((text for start, text in _REMEDIES.items() if kind.startswith(start)), "correct or remove them")
        yield Finding(
            "rejected records",
            f"{split}: {_of(count, total, 'records')} are unusable, first {seen.rejects[kind]}",
            remedy,
        )


def lengths_of(made: Made, split: str) -> np.ndarray:
    """(n,) tokens of each example's input, with ``<s>`` and ``</s>``."""
    layout = made.folder.layout
    names = [name for name in layout.ids if name not in layout.outputs]
    sizes = np.sum([made.folder.sequences(split, name).sizes for name in names], axis=0)
    return sizes + (1 if layout.outputs else 2)  # pairs are stored with </s>


def _cut(made: Made) -> Iterator[Finding]:
    longest = max(made.lengths, default=0)
    for split in made.splits:
        count = int(np.count_nonzero(lengths_of(made, split) > longest))
        if count and longest:
            total = len(lengths_of(made, split))
            yield Finding(
                "documents cut",
                f"{split}: {_of(count, total)} have more than {longest:,} tokens",
                "train with more positions, or put what matters first: what is beyond them is not read",
            )


def _unseen(made: Made) -> Iterator[Finding]:
    remedy = "take another tokenizer, or replace these characters: the pretrained model never saw them"
    for line in unseen_tokens(made.folder, made.splits):
        yield Finding("tokens never seen", line, remedy)

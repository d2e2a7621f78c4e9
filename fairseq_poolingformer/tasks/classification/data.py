"""Documents with a label: examples, the released files, and figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar
from xml.etree import ElementTree

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import Mean, Statistic, shares
from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text import labels
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_values import BadLine, placed, read_object
from fairseq_poolingformer.text.labels import id_of
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NO_LABEL = -1


@dataclass(frozen=True)
class ClassificationSplit(Split):
    """One split; ``label`` has the number of a label, or nothing."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess imdb, hyperpartisan or labelled_text", ids=("document",), numbers=("label",)
    )

    document: Sequences
    label: Sequences


read_labels = partial(labels.read_labels, layout=ClassificationSplit.layout)


class ClassificationExamples(Examples):
    """The examples of a split."""

    def __init__(
        self,
        split: ClassificationSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
    ) -> None:
        refuse(split.label, split.label.sizes > 1, "several labels")
        self.split, self.symbols, self.use_global = split, symbols, use_global
        self.room, self.max_segments = max_positions - 2, max_segments
        counts = count_pieces(split.document.sizes, self.room, max_segments)
        self.sizes = np.minimum(split.document.sizes, counts * self.room) + 2 * counts

    @property
    def known(self) -> np.ndarray:
        return self.split.label.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        document = self.split.document[example]
        return [self._segment(document[first:end]) for first, end in cut(len(document), self.room, self.max_segments)]

    def _segment(self, document: np.ndarray) -> Segment:
        tokens = np.concatenate([[self.symbols.bos], document, [self.symbols.eos]]).astype(np.int64)
        return Segment(tokens, (np.arange(len(tokens)) == 0) & self.use_global)

    def targets(self, example: int) -> dict[str, int]:
        """``label``, NO_LABEL if unknown."""
        label = self.split.label[example]
        return {"label": int(label[0]) if len(label) else NO_LABEL}


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones, of the documents that have a prediction."""
    return figures(*compared(gold, predictions, read_gold, read_gold))


def figures(right: Mapping[str, str], predicted: Mapping[str, str]) -> dict[str, float | int]:
    """Accuracy, macro F1, and precision, recall and F1 of each label, in percent, of predictions by id."""
    pairs = [(right[name], label) for name, label in predicted.items()]
    same = [100 * (one == other) for one, other in pairs]
    names = sorted({*right.values(), *predicted.values()})
    there, found = (np.array([[name == pair[side] for name in names] for pair in pairs], int) for side in (0, 1))
    counts = np.stack([found & there, found, there], 1)  # (n, 3, labels)
    scores: dict[str, float | int] = {"accuracy": Mean.of(sum(same) / len(same), same)}
    scores["macro_f1"] = Statistic.of(counts, _macro_f1)
    for name, each in zip(names, counts.sum(axis=0).T.tolist(), strict=True):
        scores |= {f"{kind}_{name}": value for kind, value in shares(*each).items()}
    return scores | {"examples": len(pairs), "without_prediction": len(right) - len(pairs)}


def _macro_f1(counts: np.ndarray) -> float:
    hits, found, there = counts.sum(axis=0)
    return float(np.mean(200 * hits / np.maximum(found + there, 1)))


IMDB_LABELS = ("neg", "pos")
HYPERPARTISAN_LABELS = ("false", "true")


def label_of(fields: dict) -> str:
    """Return a JSON line's label as text: a string, a whole number, true or false, or a list of one of these."""
    label = fields.get("label")
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if isinstance(label, float) and label.is_integer():  # as tables have whole numbers
        label = int(label)
    if isinstance(label, str) and label.strip():
        return " ".join(label.split())
    if isinstance(label, int):
        return json.dumps(label)
    if isinstance(label, list):
        raise BadLine(f"several labels: 'label' is a list of {len(label)}, and a document has one")
    raise BadLine("no label: 'label' must be a string, a whole number, true or false, or a list of one of these")


def imdb_id(path: Path) -> str:
    """``test/pos/0_10`` for ``…/test/pos/0_10.txt``."""
    return "/".join((*Path(path).parts[-3:-1], Path(path).stem))


def read_articles(content: BinaryIO, name: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The attributes and the text of each ``<article>`` of a file: of each of its children, and between these."""
    depth, root = 0, None
    try:
        for event, element in ElementTree.iterparse(content, ("start", "end")):
            depth += 1 if event == "start" else -1
            root = element if root is None else root
            if event == "end" and depth == 1:
                if element.tag != "article":
                    raise ValueError(f"{name}: <{element.tag}> is where an <article> must be")
                parts = [element.text, *(text for one in element for text in ("".join(one.itertext()), one.tail))]
                yield dict(element.attrib), list(filter(None, parts))
                root.clear()  # memory is that of one article
    except ElementTree.ParseError as error:
        raise ValueError(f"{name}: not XML, or cut ({error}); fetch it again") from None


def read_ground_truth(path: Path) -> dict[str, str]:
    """Read Hyperpartisan's ground truth: "true" or "false" by article id."""
    labels: dict[str, str] = {}
    with open(path, "rb") as content:
        for attributes, _ in read_articles(content, str(path)):
            name, label = (attributes.get(key, "") for key in ("id", "hyperpartisan"))
            if not name.strip() or label not in HYPERPARTISAN_LABELS or name in labels:
                raise ValueError(f"{path}, article {name}: needs an id of its own and hyperpartisan=true or false")
            labels[name] = label
    if not labels:
        raise ValueError(f"{path}: no <article id=… hyperpartisan=…> in it")
    return labels


def read_gold(path: Path) -> dict[str, str]:
    """Read the label of every document by its id."""
    if path.is_dir():
        files = [file for label in IMDB_LABELS for file in sorted((path / label).glob("*.txt"))]
        return {imdb_id(file.resolve()): file.parent.name for file in files}
    if path.suffix == ".xml":
        return read_ground_truth(path)
    if path.suffix in (".csv", ".tsv", ".parquet"):
        raise ValueError(f'{path}: not lines of JSON with "id" and "label"; make one of each row')
    labels: dict[str, str] = {}
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                with placed(path, f"line {number}"):
                    fields = read_object(line)
                    name, label = id_of(fields, str(path), number), label_of(fields)
                    if name in labels:
                        raise BadLine(f"id {name} is there twice")
                labels[name] = label
    return labels

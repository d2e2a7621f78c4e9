"""Documents with a label, several labels or an amount: examples, the released files, and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar
from xml.etree import ElementTree

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import Mean, Statistic, shares, statistics_of_shares
from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text import labels
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_values import BadLine, placed, read_object
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL, id_of
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NO_LABEL = -1


@dataclass(frozen=True)
class ClassificationSplit(Split):
    """One split; ``label`` has a number, a bit for each of several labels, an amount's float32 bits, or nothing."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess imdb, hyperpartisan or labelled_text", ids=("document",), numbers=("label",)
    )

    document: Sequences
    label: Sequences


read_labels = partial(labels.read_labels, layout=ClassificationSplit.layout)


def amounts_as_integers(amounts: np.ndarray) -> np.ndarray:
    """The bits of (n,) numbers as float32, to be stored among integers."""
    return np.asarray(amounts, np.float32).view(np.int32)


class ClassificationExamples(Examples):
    """The examples of a split."""

    def __init__(
        self,
        split: ClassificationSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
        problem: str = ONE,
        num_labels: int = 0,
    ) -> None:
        self.problem, self.num_labels = problem, num_labels
        sizes, wanted = split.label.sizes, num_labels if problem == SEVERAL else 1
        refuse(split.label, (sizes != 0) & (sizes != wanted), f"not {wanted} numbers for a {problem}")
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

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        """``label``, NO_LABEL if unknown; ``labels``, (L,) 0 or 1, or NO_LABEL; or ``amount``, (1,), NaN if unknown."""
        label = self.split.label[example]
        if self.problem == SEVERAL:
            return {"labels": np.array(label) if len(label) else np.full(self.num_labels, NO_LABEL)}
        if self.problem == AMOUNT:
            amount = np.array(label, np.int32).view(np.float32) if len(label) else np.full(1, np.nan)
            return {"amount": amount.astype(np.float64)}  # which --fp16 leaves alone
        return {"label": int(label[0]) if len(label) else NO_LABEL}


Label = str | tuple[str, ...] | float  # of a document; several; an amount


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones, of the documents that have a prediction."""
    there, found = compared(gold, predictions, read_gold, read_gold)
    with placed(predictions):
        return figures(there, found)


def figures(there: Mapping[str, Label], found: Mapping[str, Label]) -> dict[str, float | int]:
    """The figures of predictions by id, given the right labels."""
    pairs = [(there[name], label) for name, label in found.items()]
    counts = {"examples": len(pairs), "without_prediction": len(there) - len(pairs)}
    if any(isinstance(label, float) or (isinstance(right, float) and not right.is_integer()) for right, label in pairs):
        return _figures_of_amounts(pairs) | counts
    return _figures_of_labels([(_as_set(right), _as_set(label)) for right, label in pairs], there, found) | counts


def _as_set(label: Label) -> frozenset[str]:
    """The names of labels; 1.0 is the name 1, as in preprocessing."""
    return frozenset(label if isinstance(label, tuple) else [f"{label:.0f}" if isinstance(label, float) else label])


def _figures_of_labels(
    pairs: Sequence[tuple[frozenset[str], frozenset[str]]], *files: Mapping[str, Label]
) -> dict[str, float | int]:
    """The figures of (right, predicted) labels; ``files`` have those of all documents."""
    same = [100 * (right == label) for right, label in pairs]
    figures: dict[str, float | int] = {"accuracy": Mean.of(sum(same) / len(same), same)}
    names = sorted(frozenset().union(*(_as_set(label) for file in files for label in file.values())))
    found, there = (np.array([[name in pair[side] for name in names] for pair in pairs], int) for side in (1, 0))
    counts = np.stack([found & there, found, there], 1)  # (n, 3, labels)
    if any(isinstance(label, tuple) for file in files for label in file.values()):
        figures |= statistics_of_shares(counts.sum(axis=2))
    figures |= {"macro_f1": Statistic.of(counts, _macro_f1) if names else 0.0}
    for name, each in zip(names, counts.sum(axis=0).T.tolist(), strict=True):
        figures |= {f"{kind}_{name}": value for kind, value in shares(*each).items()}
    return figures


def _macro_f1(counts: np.ndarray) -> float:
    hits, found, there = counts.sum(axis=0)
    return float(np.mean(200 * hits / np.maximum(found + there, 1)))


def _figures_of_amounts(pairs: Sequence[tuple[Label, Label]]) -> dict[str, float | int]:
    from scipy.stats import pearsonr, spearmanr  # here, since it takes a second

    try:
        right, found = np.array(pairs, np.float64).T
    except (ValueError, TypeError):
        raise ValueError("amounts, and a label is not a number; are the gold files others?") from None
    correlations = {
        name: Statistic.of(np.stack([right, found], 1), partial(_correlation, of))
        for name, of in (("pearson", pearsonr), ("spearman", spearmanr))
    }
    errors = (right - found) ** 2
    return correlations | {"mse": Mean.of(float(np.mean(errors)), errors)}


def _correlation(of: Callable, pairs: np.ndarray) -> float:
    """100 times a correlation of (n, 2) numbers; 0 where it is not defined."""
    x, y = pairs.T
    if len(x) < 2 or not (np.ptp(x) and np.ptp(y)):
        return 0.0
    return 100 * float(of(x, y).statistic)


IMDB_LABELS = ("neg", "pos")
HYPERPARTISAN_LABELS = ("false", "true")


def label_of(fields: dict) -> Label:
    """Return a JSON line's label: text (of whole numbers and booleans, too), a tuple of several, or an amount."""
    label = fields.get("label")
    if isinstance(label, list) and len(label) != 1:
        return tuple(dict.fromkeys(map(_text_of, label)))
    label = label[0] if isinstance(label, list) else label
    return label if isinstance(label, float) and math.isfinite(label) else _text_of(label)


def _text_of(label: object) -> str:
    if isinstance(label, str) and label.strip():
        return " ".join(label.split())
    if isinstance(label, int):
        return json.dumps(label)
    raise BadLine(
        "no label: 'label' must be a string, a whole number, true or false, a list of these, or a finite amount"
    )


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


def read_gold(path: Path) -> dict[str, Label]:
    """Read the label of every document by its id."""
    if path.is_dir():
        files = [file for label in IMDB_LABELS for file in sorted((path / label).glob("*.txt"))]
        return {imdb_id(file.resolve()): file.parent.name for file in files}
    if path.suffix == ".xml":
        return read_ground_truth(path)
    if path.suffix in (".csv", ".tsv", ".parquet"):
        raise ValueError(f'{path}: not lines of JSON with "id" and "label"; make one of each row')
    labels: dict[str, Label] = {}
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

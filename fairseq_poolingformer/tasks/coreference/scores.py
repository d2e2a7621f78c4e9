"""The figures of CoNLL-2012: MUC, B³ and CEAF-φ₄ as version 8.01 of the official scorer counts them.

Pradhan et al., ACL 2014. An entity, or *chain*, is a sequence of mentions; a mention is any hashable value. Every
figure is a quotient whose numerator and denominator are summed over documents. A mention that only one side has counts
as wrong, nothing is added to the other side. Where a side names a mention twice, which OntoNotes never does, the
numbers are the scorer's too.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.coreference.data import SCORED_COLUMNS, ConllDocument, parse_document, split_documents
from fairseq_poolingformer.text.input_files import opened
from fairseq_poolingformer.text.json_values import BadLine

MAX_REPEATED = 10  # of more, the official scorer holds the response for wrong and refuses it


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official scorer's figures × 100, unrounded; a document without a prediction has no mentions."""
    key = read_files(gold)
    response = read_files([predictions])
    if not key.keys() & response.keys():
        raise ValueError(f"{predictions}: no document of the gold files; the first one is {next(iter(key))}")
    missing = len(key.keys() - response.keys())
    if predicted_only:
        key = {name: document for name, document in key.items() if name in response}
    total = CoreferenceScore()
    for name, document in key.items():
        predicted = response.get(name)
        if predicted is not None and len(predicted.words) != len(document.words):
            raise ValueError(
                f"{predictions}: {name} has {len(predicted.words)} words, but {len(document.words)} in the gold files; "
                "predict for the same release"
            )
        total += score_document(document.clusters, predicted.clusters if predicted else ())
    if total.repeated > MAX_REPEATED:
        raise ValueError(
            f"{predictions}: {total.repeated} mentions occur twice; the official scorer takes {MAX_REPEATED} at most"
        )
    metrics: dict[str, float | int] = {"conll_f1": 100 * total.conll_f1}
    for name in ("muc", "b_cubed", "ceaf_e", "mentions"):
        counts = getattr(total, name)
        metrics |= {f"{name}_{figure}": 100 * getattr(counts, figure) for figure in ("f1", "recall", "precision")}
    return metrics | {"examples": len(key), "without_prediction": missing}


def read_files(paths: Sequence[Path]) -> dict[str, ConllDocument]:
    """The documents of files by name."""
    by_name: dict[str, ConllDocument] = {}
    for path in paths:
        try:
            with opened(path) as content:
                file = io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n")
                documents = [(raw.first_line, parse_document(raw, SCORED_COLUMNS)) for raw in split_documents(file)]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error
        except BadLine as error:
            raise ValueError(f"{path}: {error}") from error
        for line, document in documents:
            if document.name in by_name:
                raise ValueError(f"{path}, line {line}: {document.name} occurs a second time")
            by_name[document.name] = document
    if not by_name:
        raise ValueError(f"{', '.join(map(str, paths))}: no document")
    return by_name


Chains = Sequence[Sequence[Hashable]]


@dataclass(frozen=True)
class RecallPrecision:
    """Recall and precision as two quotients, which add up over documents."""

    found: float = 0.0
    to_find: float = 0.0
    right: float = 0.0
    given: float = 0.0

    def __add__(self, other: RecallPrecision) -> RecallPrecision:
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return RecallPrecision(*(one + two for one, two in pairs))

    @property
    def recall(self) -> float:
        return self.found / self.to_find if self.to_find else 0.0

    @property
    def precision(self) -> float:
        return self.right / self.given if self.given else 0.0

    @property
    def f1(self) -> float:
        total = self.recall + self.precision
        return 2 * self.recall * self.precision / total if total else 0.0


@dataclass(frozen=True)
class CoreferenceScore:
    """The counts of one document or of several together."""

    mentions: RecallPrecision = RecallPrecision()  # mentions with the right words, whatever their entity
    muc: RecallPrecision = RecallPrecision()  # links (Vilain et al., 1995)
    b_cubed: RecallPrecision = RecallPrecision()  # mentions (Bagga and Baldwin, 1998)
    ceaf_e: RecallPrecision = RecallPrecision()  # entities, each aligned with one of the other side at most (Luo, 2005)
    repeated: int = 0  # mentions that the response has twice and the key has, too; the second ones are left out

    def __add__(self, other: CoreferenceScore) -> CoreferenceScore:
        return CoreferenceScore(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def conll_f1(self) -> float:
        """The mean of the three F1, by which CoNLL-2012 ranked systems."""
        return (self.muc.f1 + self.b_cubed.f1 + self.ceaf_e.f1) / 3


def score_document(key: Chains, response: Chains) -> CoreferenceScore:
    """Compare a document's predicted chains with the true ones."""
    known = {mention for chain in key for mention in chain}
    response, repeated = _without_repeated(known, response)
    predicted = {mention for chain in response for mention in chain}
    common = len(known & predicted)
    return CoreferenceScore(
        RecallPrecision(common, len(known), common, len(predicted)),
        muc(key, response),
        b_cubed(key, response),
        ceaf_e(key, response),
        repeated,
    )


def _without_repeated(known: set[Hashable], response: Chains) -> tuple[list[list[Hashable]], int]:
    """Leave out all but the first of the response's mentions that the key has; others stay, as in the scorer."""
    seen: set[Hashable] = set()
    chains, repeated = [], 0
    for chain in response:
        unique = []
        for mention in chain:
            if mention in seen:
                repeated += 1
                continue
            unique.append(mention)
            if mention in known:
                seen.add(mention)
        chains.append(unique)
    return chains, repeated


def muc(key: Chains, response: Chains) -> RecallPrecision:
    """Count links: a chain of n mentions has n − 1, and of a response's, those that join mentions of one true chain."""
    chain_of = {mention: number for number, chain in enumerate(key) for mention in chain}
    right = 0
    for chain in response:
        true_chains = [chain_of[mention] for mention in chain if mention in chain_of]
        right += len(true_chains) - len(set(true_chains))
    true_links, predicted_links = (sum(len(chain) - 1 for chain in chains if chain) for chains in (key, response))
    return RecallPrecision(right, true_links, right, predicted_links)


def b_cubed(key: Chains, response: Chains) -> RecallPrecision:
    """Count for each mention the share of its true chain, and of its predicted one, that both have."""
    chain_of = {mention: number for number, chain in enumerate(key) for mention in chain}
    members = [set(chain) for chain in key]
    recalled = right = 0.0
    for chain in response:
        common: dict[int, int] = {}
        for mention in chain:
            number = chain_of.get(mention)
            if number is None:
                continue
            if number not in common:
                common[number] = sum(other in members[number] for other in chain)
            recalled += common[number] / len(key[number])
            right += common[number] / len(chain)
    return RecallPrecision(recalled, sum(map(len, key)), right, sum(map(len, response)))


def ceaf_e(key: Chains, response: Chains) -> RecallPrecision:
    """Align chains one to one so that Σ φ₄ is largest, φ₄(K, R) = 2·|K ∩ R| / (|K| + |R|)."""
    with needing("scoring"):
        from scipy.optimize import linear_sum_assignment  # it takes half a second, and only coreference needs it

    key, response = ([chain for chain in chains if chain] for chains in (key, response))
    numbers: dict[Hashable, set[int]] = {}
    for number, chain in enumerate(response):
        for mention in chain:
            numbers.setdefault(mention, set()).add(number)
    similarity = np.zeros((len(key), len(response)))
    for row, chain in enumerate(key):
        common = Counter(number for mention in chain for number in numbers.get(mention, ()))
        for number, count in common.items():
            similarity[row, number] = 2 * count / (len(chain) + len(response[number]))
    total = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    return RecallPrecision(total, len(key), total, len(response))

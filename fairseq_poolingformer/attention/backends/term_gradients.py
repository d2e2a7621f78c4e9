"""The gradients of score terms, which backends add up as they go over the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_poolingformer.attention.score_terms.relative_bias import ScoreTerm, term_tensors, with_tensors


def tensors_of(terms: tuple[ScoreTerm, ...]) -> list[Tensor]:
    """The tensors of all score terms, in order."""
    return [tensor for term in terms for tensor in term_tensors(term).values()]


class TermGradients:
    """The score terms over detached tensors, and the sums of these tensors' gradients, in 32 bits at least.

    Args:
        terms: the call's score terms.
        tensors: theirs, as :func:`tensors_of` gives them.
        wanted: which of those need gradients.
    """

    def __init__(self, terms: tuple[ScoreTerm, ...], tensors: list[Tensor], wanted: tuple[bool, ...]) -> None:
        self.leaves = [t.detach().requires_grad_(want) for t, want in zip(tensors, wanted, strict=True)]
        self.sums = [
            torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32)) if leaf.requires_grad else None
            for leaf in self.leaves
        ]
        self.terms: list[tuple[ScoreTerm, dict[str, int]]] = []  # with the places in ``sums`` that it adds to
        first = 0
        for term in terms:
            names = list(term_tensors(term))
            numbers = range(first, first + len(names))
            leaves = {name: self.leaves[n] for name, n in zip(names, numbers, strict=True)}
            places = {name: n for name, n in zip(names, numbers, strict=True) if wanted[n]}
            self.terms.append((with_tensors(term, leaves), places))
            first = numbers.stop

    def results(self) -> list[Tensor | None]:
        """The gradients, in their tensors' dtypes; None where none are wanted."""
        pairs = zip(self.sums, self.leaves, strict=True)
        return [None if total is None else total.to(leaf.dtype) for total, leaf in pairs]

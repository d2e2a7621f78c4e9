"""Score terms as the Triton kernels read them: a table of distances, and tables of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import LOG2E, TermGradients
from fairseq_poolingformer.attention.call import Call, Pairs, ScoreTerm, term_tensors
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias

FARTHEST = 2**30  # farther than any two tokens are apart


def with_contiguous_tables(call: Call) -> Call:
    """The call with contiguous copies of its score terms' tensors, so that their gradients are contiguous, too."""
    tables = [{name: x.contiguous() for name, x in term_tensors(term).items()} for term in call.score_terms]
    if not any(tables):
        return call
    terms = (replace(term, **x) if x else term for term, x in zip(call.score_terms, tables, strict=True))
    return replace(call, score_terms=tuple(terms))


def distance_table(num_heads: int, terms: Sequence[ScoreTerm]) -> Tensor | None:
    """The sum of all RelativePositionBias terms: (H, 2k + 1) float32; None without any."""
    biases = [term for term in terms if isinstance(term, RelativePositionBias)]
    if not biases:
        return None
    tables = [term.table for term in biases]
    farthest = max(table.size(1) // 2 for table in tables)
    distance = torch.arange(-farthest, farthest + 1, device=tables[0].device)
    pairs = Pairs(query_index=distance, key_index=distance.new_zeros(1))
    scores: Any = sum(term.scores(pairs).squeeze(-1).float() for term in biases)
    return scores.expand(num_heads, -1)


def binary_scores(table: Tensor | None) -> Tensor | None:
    """A table of distances as the kernels read it: contiguous, with the factor log2(e)."""
    return None if table is None else (table.detach() * LOG2E).contiguous()


class Positions(NamedTuple):
    """The tables that a kernel multiplies with, for the heads of a group."""

    of_rows: Tensor | None = None  # (H, 2k, D), multiplied with the vectors of a tile's rows; None for no product
    of_columns: Tensor | None = None  # (H, 2k, D), multiplied with those of its columns
    grad: Tensor | None = None  # (H, 2k, D) float32, the kernel adds the gradient of ``of_rows``; None where not needed
    num_rows: int | None = None  # 2k; None without tables
    bucket: int | None = None  # neighbouring distances that share a row


NO_POSITIONS = Positions()  # instead of None, because kernels cannot test a tuple for None before Triton 3.7


@dataclass(frozen=True)
class PositionTables:
    """A call's :class:`DisentangledPosition`; in the backward pass also the sums of its tensors' gradients by name."""

    term: DisentangledPosition
    sums: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: Sequence[ScoreTerm]) -> PositionTables | None:
        """The tables of the one DisentangledPosition among the terms; None without any."""
        return next((cls(term) for term in terms if isinstance(term, DisentangledPosition)), None)

    @classmethod
    def with_sums(cls, gradients: TermGradients) -> PositionTables | None:
        """The tables of the backward pass, with sums of their gradients; None without any."""
        for term, places in gradients.terms:
            if isinstance(term, DisentangledPosition):
                return cls(term, {name: gradients.sums[place] for name, place in places.items()})
        return None

    def positions(self, heads: slice, *, coarse: bool, by_key: bool) -> Positions:
        """The tables of some heads, coarse where each pair has a global token; by key for tiles (keys × queries)."""
        tables, bucket = term_tensors(self.term), 1
        names: tuple[str, ...] = ("p2c", "c2p") if by_key else ("c2p", "p2c")
        if coarse and not tables.keys().isdisjoint(("global_c2p", "global_p2c")):
            names, bucket = tuple(f"global_{name}" for name in names), self.term.global_bucket
        of_rows, of_columns = map(tables.get, names)
        grad = self.sums.get(names[0])
        return Positions(
            None if of_rows is None else of_rows[heads],
            None if of_columns is None else of_columns[heads],
            None if grad is None else grad[heads],
            (of_columns if of_rows is None else of_rows).size(1),
            min(bucket, FARTHEST),
        )


def position_line(
    tables: PositionTables, heads: slice, *, gathered: bool, extra: bool, by_key: bool
) -> tuple[Positions, Positions]:
    """positions, extra_positions: the tables for a kernel's own lane, and for its extra lane if it has one.

    ``gathered`` says that the queries, or with ``by_key`` the keys, are global tokens.
    """
    coarse = tables.positions(heads, coarse=True, by_key=by_key)
    own = coarse if gathered else tables.positions(heads, coarse=False, by_key=by_key)
    return own, coarse if extra else NO_POSITIONS

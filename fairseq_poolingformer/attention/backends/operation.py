"""Attention with the backward pass of a backend's own, as one autograd.Function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import Plan, tensors_of
from fairseq_poolingformer.attention.first_order import first_order

Saved = tuple[Tensor, Tensor, Tensor | None]


class Operation(NamedTuple):
    """The functions of a backend.

    ``lse`` (B, H, T) are the softmax's denominators' logarithms to base 2, +inf at global queries, ``global_lse``
    (B, H, G) or None theirs. ``nothing`` is +inf, or a number below all others.
    """

    forward: Callable[..., Saved]  # (plan, query, key, value, *score terms' tensors) -> out, lse, global_lse
    # (plan, (query, key, value, out, lse, global_lse, *tensors), which tensors need gradients, grad_out, grad_lse)
    # -> gradients of query, key, value and the tensors
    backward: Callable[..., tuple[Tensor | None, ...]]
    nothing: float  # ``lse`` of a query that sees nothing

    def sees_nothing(self, lse: Tensor) -> Tensor:
        """True where ``lse`` (B, H, T) is of a query that sees nothing."""
        return lse == torch.inf if self.nothing > 0 else lse < self.nothing / 2

    def all_rows(self, plan: Plan, lse: Tensor, global_lse: Tensor | None) -> Tensor:
        """(B, H, T) the logarithms to base 2 of all queries, −inf where a query sees nothing; in place of ``lse``."""
        if plan.global_queries:
            assert global_lse is not None
            plan.global_queries.put(lse.unsqueeze(-1), global_lse.unsqueeze(-1))
        return lse.masked_fill_(self.sees_nothing(lse), -torch.inf)

    def of_groups(self, plan: Plan, lse: Tensor) -> tuple[Tensor, Tensor | None]:
        """``lse`` and ``global_lse`` of what :meth:`all_rows` returns."""
        lse = lse.masked_fill(lse == -torch.inf, self.nothing)
        if not plan.global_queries:
            return lse, None
        global_lse = plan.global_queries.gather(lse.unsqueeze(-1)).squeeze(-1).contiguous()
        plan.global_queries.put(lse.unsqueeze(-1), torch.inf)
        return lse, global_lse


def attend(operation: Operation, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *pools: Tensor) -> Any:
    """The output, with ``plan.return_lse`` also (B, H, T) the natural logarithms.

    ``pools`` are the keys and values of ``plan.pool_plan``, and the backend's tensors in place of score terms'.
    """
    return _Attention.apply(operation, plan, query, key, value, *pools, *tensors_of(plan.terms))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, operation: Operation, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor):
        out, lse, global_lse = operation.forward(plan, query, key, value, *tensors)
        ctx.operation, ctx.plan = operation, plan
        ctx.save_for_backward(query, key, value, out, lse, global_lse, *tensors)
        if not plan.return_lse:
            return out
        global_lse = None if global_lse is None else global_lse * math.log(2)
        return out, operation.all_rows(plan, lse * math.log(2), global_lse)

    @staticmethod
    @first_order
    def backward(ctx, saved, grad_out: Tensor, grad_lse: Tensor | None = None):
        wanted = ctx.needs_input_grad[5:]
        return None, None, *ctx.operation.backward(ctx.plan, saved, wanted, grad_out, grad_lse)

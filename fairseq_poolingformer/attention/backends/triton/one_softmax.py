"""One softmax over tokens and pools by one kernel forward, one by queries and two by keys backward.

The pools are a lane of the kernels by queries; by keys they have a launch of their own, with the logarithms of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.backends.plan import Plan, dense, empty_like
from fairseq_poolingformer.attention.backends.triton import launches
from fairseq_poolingformer.attention.backends.triton.arguments import Tokens, global_group, local_groups, same_layout
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

DRAW_OF_POOLS = 4  # as the kernels have it: tells dropout of the pools from that of tokens and global tokens


def why_not(tokens: Call, pools: Call) -> str | None:
    """The reason why two calls of a layer cannot be one, besides those why each of them cannot run."""
    if tokens.score_terms or [type(term) for term in pools.score_terms] != [UnseenTokens]:
        return "its kernel of one softmax has no score terms"
    if tokens.window.left == tokens.window.right == UNLIMITED:
        return "its kernel of one softmax has a window over tokens"
    return None


def run(tokens: Call, pools: Call) -> Tensor:
    """The output (B, H, T, D) of one softmax over a call's tokens and another one's pools."""
    plan = Plan.of(tokens)
    of_pools = replace(Plan.of(replace(pools, dropout_p=0.0)), dropout=plan.dropout)
    pairs: list[Tensor] = []
    for call in (tokens, pools):
        key, value = dense(call.key), dense(call.value)
        pairs += (key, value) if same_layout(key, value) else (key.contiguous(), value.contiguous())
    with torch.cuda.device_of(tokens.query):
        return _OneSoftmax.apply(plan, of_pools, dense(tokens.query), *pairs)


def _inputs(
    plan: Plan, of_pools: Plan, query: Tensor, key: Tensor, value: Tensor, pool_key: Tensor, pool_value: Tensor
) -> Any:
    """The inputs of launches over tokens alone, over both, and over pools alone; and the group of the last."""
    tokens, pool_tokens = Tokens.of(plan), Tokens.of(of_pools)
    (group,) = local_groups(of_pools, pool_tokens, query, pool_key, pool_value)
    group = group._replace(draw=DRAW_OF_POOLS, key_hidden=None)  # pools without a token count nothing
    x = launches.Inputs(plan, tokens, query, key, value, None, None)
    both = x._replace(plan=replace(plan, unseen=of_pools.unseen), pools=group)
    return x, both, launches.Inputs(of_pools, pool_tokens, query, pool_key, pool_value, None, None), group


class _OneSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, of_pools: Plan, query: Tensor, *pairs: Tensor):
        x, both, _, _ = _inputs(plan, of_pools, query, *pairs)
        (group,) = local_groups(plan, x.tokens, query, x.key, x.value)
        out, global_lse = empty_like(query), None
        lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        launches.forward(both, group, out, lse)
        if plan.global_queries:
            group = global_group(plan, x.tokens, query, x.key, x.value)
            global_lse = lse.new_empty(*query.shape[:2], group.num_queries)
            launches.forward(x, group, out, global_lse, window_lse=lse)
        ctx.plans = plan, of_pools
        ctx.save_for_backward(query, *pairs, out, lse, global_lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        plan, _ = ctx.plans
        *tensors, out, lse, global_lse = ctx.saved_tensors
        x, both, pools, pool_group = _inputs(*ctx.plans, *tensors)
        (group,) = local_groups(plan, x.tokens, x.query, x.key, x.value)
        if not same_layout(grad_out, out):
            grad_out = torch.empty_like(out).copy_(grad_out)
        grad_query, delta, global_rows = torch.empty_like(out), torch.empty_like(lse), None
        launches.backward_queries(both, group, out, grad_out, lse, delta, grad_query, None, None)
        if plan.global_queries:
            of_globals = global_group(plan, x.tokens, x.query, x.key, x.value)
            global_rows = launches.GlobalRows(of_globals, global_lse, torch.empty_like(global_lse))
            launches.backward_queries(x, of_globals, out, grad_out, *global_rows[1:], grad_query, None, None)
        grads = (
            *launches.backward_keys(x, [group], grad_out, lse, delta, global_rows),
            *launches.backward_keys(pools, [pool_group], grad_out, lse, delta, None),
        )
        return None, None, grad_query, *(grad.to(x.key.dtype) for grad in grads)

"""Attention by Triton kernels on NVIDIA GPUs: one launch a query group forward, two backward; scores stay on the chip.

``forward.py`` and ``backward.py`` have the kernels, ``tiles.py`` and ``positions.py`` the operations on one tile that
all kernels share. ``launches.py`` launches them with the arguments that ``arguments.py`` and ``terms.py`` assemble.
The kernels find the rows of global tokens themselves, because gathering them with torch would cost the host more time
than the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.operation import Operation, Saved, attend
from fairseq_poolingformer.attention.backends.plan import Plan, TermGradients, dense, empty_like
from fairseq_poolingformer.attention.backends.self_check import failure
from fairseq_poolingformer.attention.backends.triton.arguments import Tokens, same_layout
from fairseq_poolingformer.attention.backends.triton.terms import (
    PositionTables,
    binary_scores,
    distance_table,
    with_contiguous_tables,
)
from fairseq_poolingformer.attention.call import Call, term_tensors
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.choices import UNLIMITED

try:
    import triton

    from fairseq_poolingformer.attention.backends.triton import launches, pooling  # noqa: F401 (for callers)
except ImportError:  # only torch's CUDA builds for Linux bring it
    triton = None

MAX_HEAD_DIM = 256
MAX_KERNEL_SIZE = 32  # of pools, whose tokens kernels visit in unrolled loops
LEAST_LSE = -1e37  # a logarithm below it is that of no key
MAX_HEAD_DIM_OF_POSITIONS = {2: 256, 4: 128}  # by bytes of a number; larger tables do not fit the chip


def why_not(call: Call) -> str | None:
    """It runs in 16 and 32 bits on NVIDIA GPUs, with the score terms that its kernels know."""
    reason, head_dim = _why_not_on(call.query.device), call.query.size(-1)
    if reason is not None:
        return reason
    if call.query.dtype == torch.float64:
        return "it computes in float32, query is float64"
    if call.query.dtype == torch.bfloat16 and _is_interpreted():
        return "Triton's interpreter does not multiply bfloat16"
    if head_dim > MAX_HEAD_DIM:
        return f"it takes head dimensions up to {MAX_HEAD_DIM}, query has {head_dim}"
    for term in call.score_terms:
        if not isinstance(term, RelativePositionBias | DisentangledPosition | UnseenTokens):
            return f"it has no kernel for {type(term).__name__}"
        if torch.are_deterministic_algorithms_enabled() and any(x.requires_grad for x in term_tensors(term).values()):
            return "it sums a table's gradient in no fixed order, and torch is set to deterministic algorithms"
    return _why_not_positions(call)


def _why_not_on(device: torch.device) -> str | None:
    """The reason why it can run no call at all on a device."""
    if triton is None:
        return "Triton is not installed"
    if device.type != "cuda":
        return None if _is_interpreted() else f"it needs a CUDA device, query is on {device}"
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs an NVIDIA GPU of compute capability 8.0 or later"
    return None


def _is_interpreted() -> bool:
    return not isinstance(launches.forward_kernels.forward, triton.JITFunction)


def _why_not_positions(call: Call) -> str | None:
    terms = [term for term in call.score_terms if isinstance(term, DisentangledPosition)]
    if not terms:
        return None
    if len(terms) > 1:
        return f"it takes one DisentangledPosition, the call has {len(terms)}"
    most, head_dim = MAX_HEAD_DIM_OF_POSITIONS[call.query.element_size()], call.query.size(-1)
    if head_dim > most:
        return f"with DisentangledPosition it takes head dimensions up to {most} in {call.query.dtype}, got {head_dim}"
    return None


def runs_on(x: Tensor) -> bool:
    """Whether the kernels read tensors like ``x``, where they are."""
    if _why_not_on(x.device) is not None or x.dtype == torch.float64:
        return False
    return x.dtype != torch.bfloat16 or not _is_interpreted()


def pools(x: Tensor, kernel_size: int) -> bool:
    """Whether the kernels of ``pooling.py`` pool ``x`` (B, H, S, D) on the grid."""
    return kernel_size <= MAX_KERNEL_SIZE and runs_on(x)


def why_not_both(tokens: Call, pools: Call) -> str | None:
    """The reason why no kernel runs one softmax over tokens and pools, given as two calls."""
    if tokens.score_terms or [type(term) for term in pools.score_terms] != [UnseenTokens]:
        return "its kernel of one softmax has no score terms"
    if tokens.window.left == tokens.window.right == UNLIMITED:
        return "its kernel of one softmax has a window over tokens"
    return why_not(tokens) or why_not(pools)


def run_both(tokens: Call, pools: Call) -> Tensor:
    """The output (B, H, T, D) of one softmax over tokens and pools."""
    plan, *tensors = inputs(tokens)
    of_pools, _, *pool_tensors = inputs(replace(pools, dropout_p=0.0))
    of_pools = replace(of_pools, dropout=plan.dropout)
    return attend(OPERATION, replace(plan, pool_plan=of_pools, return_lse=False), *tensors, *pool_tensors)


def self_check(call: Call) -> str | None:
    """The reason why the compiled kernels must not run a call; None where they pass, and where they are interpreted."""
    return failure(run, call) if call.query.is_cuda else None


def run(call: Call) -> Any:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    return attend(OPERATION, *inputs(call))


def inputs(call: Call) -> tuple[Plan, Tensor, Tensor, Tensor]:
    """The plan, and query, key and value as :data:`OPERATION` takes them."""
    query, key, value = dense(call.query), dense(call.key), dense(call.value)
    if not same_layout(key, value):
        key, value = key.contiguous(), value.contiguous()
    return Plan.of(with_contiguous_tables(call)), query, key, value


def _inputs_of(plan: Plan, query: Tensor, key: Tensor, value: Tensor, tensors: Sequence[Tensor], **tables: Any) -> Any:
    """The inputs of launches over tokens, with their pools in one softmax; and of launches over these alone."""
    x = launches.Inputs(plan, Tokens.of(plan), query, key, value, **tables)
    if plan.pool_plan is None:
        return x, None
    pool_key, pool_value = tensors
    x = x._replace(pools=launches.PoolInputs(plan.pool_plan, pool_key, pool_value))
    nothing_hidden = Tokens(None, None, None, None)  # pools without a token count nothing
    return x, launches.Inputs(plan.pool_plan, nothing_hidden, query, pool_key, pool_value, draw=launches.DRAW_OF_POOLS)


def forward(plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Saved:
    """See :class:`Operation`."""
    table = binary_scores(distance_table(plan.num_heads, plan.terms))
    x, _ = _inputs_of(plan, query, key, value, tensors, table=table, positions=PositionTables.of(plan.terms))
    out, global_lse = empty_like(query), None
    lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
    steps = x.launches(out, lse)
    with torch.cuda.device_of(query):
        for step in steps.forward:
            launches.forward(x, step, step.group.of_queries(out), step.group.of_queries(lse))
        if steps.forward_of_globals is not None:
            global_lse = lse.new_empty(*query.shape[:2], steps.geometry.num_global_queries)
            launches.forward(x, steps.forward_of_globals, out, global_lse, window_lse=lse)
    return out, lse, global_lse


def backward(
    plan: Plan, saved: tuple[Any, ...], wanted: tuple[bool, ...], grad_out: Tensor, grad_lse: Tensor | None
) -> tuple[Tensor | None, ...]:
    """See :class:`Operation`."""
    query, key, value, out, lse, global_lse, *tensors = saved
    if not same_layout(grad_out, out):
        grad_out = torch.empty_like(out).copy_(grad_out)
    terms, table, grad_table = TermGradients((), [], ()), None, None
    if plan.terms:
        terms = TermGradients(plan.terms, tensors, wanted)
        with torch.enable_grad():
            table = distance_table(plan.num_heads, [term for term, _ in terms.terms])
    if table is not None and table.requires_grad:
        grad_table = torch.zeros(table.shape, dtype=table.dtype, device=table.device)
    positions = PositionTables.with_sums(terms)
    x, pools = _inputs_of(plan, query, key, value, tensors, table=binary_scores(table), positions=positions)
    grad_query, delta, global_delta, grad_of_globals = torch.empty_like(out), torch.empty_like(lse), None, None
    steps = x.launches(out, lse, grad_table is not None)
    if grad_lse is not None:  # +inf as lse has at global queries is more than LEAST_LSE, and makes weights zero
        grad_lse = grad_lse.masked_fill(lse < LEAST_LSE, 0.0).contiguous()
    for step in steps.queries:
        of = step.group.of_queries
        rows = of(out), of(grad_out), of(lse), of(delta), of(grad_query)
        launches.backward_queries(x, step, *rows, grad_table, None if grad_lse is None else of(grad_lse))
    if steps.queries_of_globals is not None:
        global_delta = torch.empty_like(global_lse)
        if grad_lse is not None:
            grad_of_globals = plan.global_queries.gather(grad_lse.unsqueeze(-1)).squeeze(-1)
            grad_of_globals = grad_of_globals.masked_fill(global_lse < LEAST_LSE, 0.0).contiguous()
        rows = out, grad_out, global_lse, global_delta, grad_query
        launches.backward_queries(x, steps.queries_of_globals, *rows, grad_table, grad_of_globals)
    grads = [*launches.backward_keys(x, steps, grad_out, lse, delta, global_lse, global_delta)]
    if pools is not None:
        grads += launches.backward_keys(pools, pools.launches(out, lse), grad_out, lse, delta, None, None)
    if grad_table is not None:
        biases = [numbers for term, numbers in terms.terms if isinstance(term, RelativePositionBias)]
        places = [place for numbers in biases for place in numbers.values()]
        of_tables = torch.autograd.grad(table, [terms.leaves[place] for place in places], grad_table)
        for place, grad in zip(places, of_tables, strict=True):
            terms.sums[place] += grad
    return grad_query, *(grad.to(key.dtype) for grad in grads), *terms.results()


OPERATION = Operation(forward, backward, nothing=2 * LEAST_LSE)

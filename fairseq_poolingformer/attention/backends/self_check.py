"""The self-check of compiled kernels: a small problem beside the reference, once for each compiled variant."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.plan import tensors_of
from fairseq_poolingformer.attention.call import Call, ScoreTerm, term_tensors
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.choices import UNLIMITED

logger = logging.getLogger(__name__)

Run = Callable[[Call], Any]
LENGTH = 1100  # queries and keys: enough for kernels to split the keys of a global token among programs
FEW = 16  # up to so many queries, keys or global tokens, kernels have smaller tiles
# Keys that a window shows on a side: few, for among many one that is missed would not be noticed; and so many that
# some blocks of keys are seen by whole blocks of queries, which kernels compute by a loop without masks.
REACHES = 20, 128
DROPOUT = 0.3
# error of a vector of the output or of a gradient, relative to that vector and the mean one
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
LEAST_SHARE = 0.04  # least squared norm that an error is divided by, as a share of a random vector's

_failures: dict[tuple[Any, ...], str | None] = {}  # by the variants that this process has checked
_lock = threading.Lock()


def once(variant: tuple[Any, ...], check: Callable[[], str | None]) -> str | None:
    """The reason why compiled kernels must not run a variant, as ``check`` gives it; None where they may.

    A variant is the kernels, their dtype, their device, and what else decides which of them run.
    """
    if variant in _failures:
        return _failures[variant]
    if variant[2].type == "cuda" and torch.cuda.is_current_stream_capturing():
        return None  # nothing else may be computed now
    with _lock, ThreadPoolExecutor(1) as thread:  # which has no mode of this one's: no_grad, autocast, hooks, …
        checked = thread.submit(check)
        if isinstance(error := checked.exception(), torch.OutOfMemoryError):
            return None  # and try again at the next call
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}" if error else checked.result()
        words = ", ".join(str(word) for word in variant[1:] if word)
        _failures[variant] = problem and f"its self-check failed ({words}): {problem}"
    return _failures[variant]


def passes(kernels: str, check: Callable[..., str | None], *variant: Any) -> bool:
    """Whether ``check(*variant)`` finds nothing wrong; where it does, a warning names the kernels."""
    failure = once((kernels, *variant), partial(check, *variant))
    if failure:
        warn_once(kernels, failure)
    return failure is None


@cache
def warn_once(kernels: str, failure: str) -> None:
    logger.warning("%s is left out: %s; please report it with `poolingformer doctor`", kernels, failure)


def largest_error(actual: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The greatest error, relative to the greatest number of each result; NaN where there is one."""
    pairs = zip(actual, exact, strict=True)  # results that are exactly zero must be so
    return torch.stack([(a - e).abs().max() / e.abs().max().clamp(min=1e-6) for a, e in pairs]).max().item()


def excess(error: float, dtype: torch.dtype) -> str | None:
    """The error in words; None where it is within the dtype's tolerance, which NaN is not."""
    return None if error <= tolerance(dtype) else f"an error of {error:.2g}, more than {tolerance(dtype):.2g}"


def reduced_products(dtype: torch.dtype) -> str | bool:
    """torch's precision of products in float32, where kernels may round factors; False where they may not."""
    precision = dtype == torch.float32 and torch.get_float32_matmul_precision()
    return precision != "highest" and precision


def tolerance(dtype: torch.dtype) -> float:
    """The bound on errors; that of 16 bits where factors of products may be rounded to 10 bits."""
    return TOLERANCES[torch.float16 if reduced_products(dtype) else dtype]


def variant_of(call: Call) -> tuple[Hashable, ...]:
    """The properties of a call that decide which compiled kernels run; those that are true name it in words."""
    query, window, tokens = call.query, call.window, call.masks.global_keys
    num_globals = tokens.num_slots if tokens else 0
    return (
        *(query.dtype, query.device, query.size(3), call.pooling, query.size(1) == 1 and "one head"),
        *(query.size(2) <= FEW and "few queries", call.key.size(2) <= FEW and "few keys"),
        *(window.left == UNLIMITED and "unlimited window", window.right == 0 and "causal"),
        *(window.dilation != 1 and "dilation", call.key_padding_mask is not None and "padding"),
        *(num_globals > 0 and "global tokens", num_globals > FEW and "many of them"),
        reduced_products(query.dtype),
        *(call.dropout_p > 0.0 and "dropout", call.return_lse and "logarithms"),
        *map(_kind_of_term, call.score_terms),
    )


def _kind_of_term(term: ScoreTerm) -> Hashable:
    values = (getattr(term, name) for name in term.__dataclass_fields__)
    return type(term).__name__, *((x.dtype, x.size(0) > 1) if isinstance(x, Tensor) else x is None for x in values)


def failure(run: Run, call: Call) -> str | None:
    """The reason why a backend's kernels must not run a call: they fail its small problem; None where they pass."""
    return once((run, *variant_of(call)), partial(difference, run, call))


def small_call(call: Call, reach: int, exact: bool = False) -> Call:
    """A call of the same variant, of two short rows of random numbers; ``exact``: the same numbers in float64.

    ``reach`` is one of REACHES.
    """
    generator, like, pooling = torch.Generator().manual_seed(0), call.query, call.pooling
    queries, keys = (5 if x.size(2) <= FEW else LENGTH for x in (call.query, call.key))
    keys = keys if pooling is None else max(5, pooling.num_pools(queries))
    size, stride = (1, 1) if pooling is None else (pooling.kernel_size, pooling.stride)
    token, middle, heads = torch.arange(keys, device=like.device), (keys - 1) // 2, min(2, like.size(1))

    def random(*shape: int, dtype: torch.dtype = like.dtype) -> Tensor:
        x = torch.randn(shape, generator=generator).to(like.device, dtype)
        return (x.double() if exact else x).requires_grad_()

    def small(term: ScoreTerm) -> ScoreTerm:
        if isinstance(term, UnseenTokens):  # with pools beyond its window, each of which has a token that counts
            place, near = torch.arange(keys * size - size // 2, device=like.device), 2 * size
            counted = torch.stack([place % 5 > 0, place % 40 < 20]) | (place % size == 0)
            return replace(term, window=Window(near, near if term.window.right else 0), counted=counted)
        tables = term_tensors(term).items()
        return replace(term, **{name: random(min(2, len(x)), *x.shape[1:], dtype=x.dtype) for name, x in tables})

    padding = None if call.key_padding_mask is None else torch.stack([token % 7 == 3, token >= keys - 2])
    tokens = call.masks.global_keys
    spread = (token - middle) % max(1, keys // (FEW + 4 if tokens and tokens.num_slots > FEW else 2)) == 0
    masks = Masks(torch.stack([spread, token == middle]) if tokens else None, padding)
    reach = reach * stride + size
    left, right = (x if x in (0, UNLIMITED) else reach for x in (call.window.left, call.window.right))
    query, key, value = (random(2, heads, n, like.size(3)) for n in (queries, keys, keys))
    changes: dict[str, Any] = {"window": Window(left, right, 1 if call.window.dilation == 1 else (2, 1)[:heads])}
    changes |= {"query": query, "key": key, "value": value, "score_terms": tuple(map(small, call.score_terms))}
    offset = 0 if pooling else middle - (queries - 1) // 2
    changes |= {"masks": masks, "query_offset": offset}
    return replace(call, **changes, scale=like.size(3) ** -0.5, dropout_p=DROPOUT if call.dropout_p else 0.0)


def difference(run: Run, call: Call) -> str | None:
    """The first result of a call's small problems in which a backend differs from the reference; None for none."""
    return next((words for reach in REACHES if (words := _difference(run, call, reach))), None)


def _difference(run: Run, call: Call, reach: int) -> str | None:
    problem, exact, dtype = small_call(call, reach), small_call(call, reach, exact=True), call.query.dtype
    one_hot = torch.eye(exact.key.size(2), device=exact.key.device).double().expand(*exact.key.shape[:2], -1, -1)
    weights, *logs = _outputs(reference.run, replace(exact, value=one_hot, dropout_p=0.0))
    if problem.dropout_p:
        kept, keep = _kept(run, problem, one_hot.to(dtype)), KeepMask(DROPOUT).keep
        share = float(kept[weights > 0.0].double().mean())
        if not abs(share - keep) <= 0.05:
            return f"dropout keeps {share:.0%} of the weights in place of {keep:.0%}"
        weights = weights * kept / keep
    actual, expected = _outputs(run, problem), [weights @ exact.value, *logs]
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x) for x in actual]
    for results, x in ((expected, exact), (actual, problem)):
        leaves = [x.query, x.key, x.value, *tensors_of(x.score_terms)]
        upstream = [grad.to(out) for grad, out in zip(grads, results, strict=True)]
        results += torch.autograd.grad(results, leaves, upstream, materialize_grads=True)
    inputs = "query", "key", "value", *(name for term in call.score_terms for name in term_tensors(term))
    names = ["the output", *["the logarithms"] * len(logs), *(f"the gradient of {name}" for name in inputs)]
    bound = tolerance(dtype)
    for name, result, right in zip(names, actual, expected, strict=True):
        length, error = right.norm(dim=-1), (result.double() - right).norm(dim=-1)
        # gradients are zero but for rounding where each query sees one key, or a table has one distance
        least = (right.size(-1) * (LENGTH if right.dim() == 2 else LEAST_SHARE)) ** 0.5
        worst = (error / (length + length.mean()).clamp(min=least)).max().item()
        if not worst <= bound:  # nor is NaN
            return f"{name} differs from the reference by {worst:.2g} of its size, more than {bound:.2g}"
    return None


def _outputs(run: Run, call: Call) -> list[Tensor]:
    """The output, of one dropout mask each time, and (B, H, T, 1) the logarithms, 0 where a query sees nothing."""
    device = call.query.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.cuda.device_of(call.query):
        torch.default_generator.manual_seed(0)
        torch.cuda.manual_seed(0)  # of this device, where there is one
        out, *logs = run(call) if call.return_lse else (run(call),)
    return [out, *(x.masked_fill(x == -torch.inf, 0.0).unsqueeze(-1) for x in logs)]


@torch.no_grad()
def _kept(run: Run, call: Call, one_hot: Tensor) -> Tensor:
    """Which weights dropout keeps, (B, H, T, S) bool: those through which one-hot values reach the output."""
    keys, head_dim = call.key.shape[2:]
    blocks = torch.nn.functional.pad(one_hot, (0, -keys % head_dim)).split(head_dim, dim=3)
    return torch.cat([_outputs(run, replace(call, value=x))[0] for x in blocks], dim=3)[..., :keys] != 0.0

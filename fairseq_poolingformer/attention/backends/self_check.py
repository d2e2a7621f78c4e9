"""A backend's self-check: before its first call of a kind, it computes a small problem beside the reference.

A call's kind is what its kernels are compiled for: device, dtype, head dimension, window, masks, score terms, dropout.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.plan import tensors_of
from fairseq_poolingformer.attention.call import Call, ScoreTerm, term_tensors
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import UNLIMITED, Window
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

logger = logging.getLogger(__name__)
Run = Callable[[Call], Any]

LENGTH = 1100  # queries and keys: enough for kernels to split the keys of a global token among programs
DROPPED_LENGTH = 150  # the same with dropout, whose mask is read off values that are one-hot
FEW = 16  # up to so many queries, keys or global tokens, kernels have smaller tiles
LEAST_REACH, REACH = 4, 20  # keys that a window shows on a side: among many, one that is missed would not be noticed
ROWS = 512  # of a score term's table, at most
DROPOUT = 0.3
# error of a vector of the output or of a gradient, relative to that vector and the mean one
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
LEAST_SHARE = 0.04  # of a vector's squared size, beside random numbers; a table of distances has sums over all queries
TOLERANCE_OF_TF32 = 8e-3  # in float32 where torch may round the factors of a product to 10 bits, as backends then may

_failures: dict[Hashable, str | None] = {}  # of the kinds that this process has checked
_lock = threading.Lock()


def failure_on_gpu(run: Run, call: Call) -> str | None:
    """What :func:`failure` finds for a call on a GPU; None on other devices, which run no compiled kernels."""
    return failure(run, call) if call.query.device.type == "cuda" else None


def failure(run: Run, call: Call) -> str | None:
    """What goes wrong when a backend computes a small problem of a call's kind; None where nothing does.

    Each kind is checked once in a process. While a CUDA graph is captured or a model is traced, and without memory for
    it, nothing is checked, and a kind that has not failed before counts as right.
    """
    kind = (run, *kind_of(call))
    with _lock:
        if kind not in _failures and not _must_not_compute(call.query.device):
            with ThreadPoolExecutor(1) as thread:  # which has no mode of this one's: no_grad, autocast, hooks, …
                checked = thread.submit(difference, run, call)
            error = checked.exception()
            if isinstance(error, torch.OutOfMemoryError):
                return None
            _failures[kind] = _report(call, checked.result() if error is None else _in_a_line(error))
        return _failures.get(kind)


def _must_not_compute(device: torch.device) -> bool:
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return capturing or torch.compiler.is_compiling()


def _in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _report(call: Call, problem: str | None) -> str | None:
    if problem is None:
        logger.info("attention self-check passed on %s: %s", call.query.device, describe(call))
        return None
    return f"its self-check failed on {call.query.device} ({describe(call)}): {problem}"


def describe(call: Call) -> str:
    """A call's kind in words."""
    window, dtype = call.window, str(call.query.dtype).removeprefix("torch.")
    words = {
        f"{dtype}, head dimension {call.query.size(3)}": True,
        "unlimited window": UNLIMITED in (window.left, window.right),
        "dilation": window.dilation != 1,
        f"{call.pooling}": call.pooling is not None,
        "global tokens": _num_globals(call),
        "padding": call.key_padding_mask is not None,
        "dropout": call.dropout_p,
        "logarithms": call.return_lse,
        **{type(term).__name__: True for term in call.score_terms},
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def kind_of(call: Call) -> tuple[Hashable, ...]:
    """What the kernels of a call depend on, as far as it is known without a look at the data."""
    query, keys = call.query, call.key.size(2)
    return (
        *(query.device, query.dtype, query.size(1) > 1, query.size(3), query.size(2) <= FEW, keys <= FEW),
        *(_small_window(call), call.pooling, _num_globals(call), call.key_padding_mask is None, call.dropout_p > 0.0),
        call.return_lse,
        *(_kind_of_term(term) for term in call.score_terms),
    )


def _kind_of_term(term: ScoreTerm) -> tuple[Hashable, ...]:
    values = (getattr(term, item.name) for item in fields(term))
    return type(term), *((x.dtype, x.size(0) > 1) if isinstance(x, Tensor) else x for x in values)


def _num_globals(call: Call) -> int:
    """How many global tokens the small problem has."""
    tokens = call.global_keys()
    return 0 if tokens is None else 2 if tokens.num_slots <= FEW else FEW + 4


def _small_window(call: Call) -> Window:
    """The window of the small problem; it shows several keys, since gradients are zero where a query sees one."""
    window, least, most = call.window, LEAST_REACH * call.key_stride, REACH * call.key_stride
    left, right = (x if x == UNLIMITED else min(max(x, least), most) for x in (window.left, window.right))
    dilations = {min(dilation, 2) for dilation in window.head_dilations(call.query.size(1))}
    return Window(left, right if window.right else 0, dilations.pop() if len(dilations) == 1 else (1, 2))


def small_call(call: Call) -> Call:
    """A call of the same kind, of two short rows of random numbers, on the same device."""
    generator, like = torch.Generator().manual_seed(0), call.query
    length, num_heads = DROPPED_LENGTH if call.dropout_p else LENGTH, min(2, like.size(1))

    def random(*shape: int, dtype: torch.dtype = like.dtype) -> Tensor:
        return torch.randn(shape, generator=generator).to(like.device, dtype).requires_grad_()

    def table(x: Tensor) -> Tensor:
        return random(min(num_heads, x.size(0)), *(min(n, ROWS + n % 2) for n in x.shape[1:]), dtype=x.dtype)

    queries, keys = (5 if x.size(2) <= FEW else length for x in (call.query, call.key))
    if call.pooling is not None:
        keys = max(5, call.pooling.num_pools(queries))
    place, middle, num_globals = torch.arange(keys, device=like.device), (keys - 1) // 2, _num_globals(call)
    global_tokens = None
    if num_globals:
        spread = (place - middle) % max(1, keys // num_globals) == 0
        global_tokens = GlobalTokens(torch.stack([spread, place == middle]))
    terms = (
        _small_count(term, keys, like.device)
        if isinstance(term, UnseenTokens)
        else replace(term, **{name: table(x) for name, x in term_tensors(term).items()})
        for term in call.score_terms
    )
    query, key, value = (random(2, num_heads, n, like.size(3)) for n in (queries, keys, keys))
    return Call(
        query,
        key,
        value,
        scale=like.size(3) ** -0.5,
        window=_small_window(call),
        pooling=call.pooling,
        global_tokens=global_tokens,
        key_padding_mask=None if call.key_padding_mask is None else torch.stack([place % 7 == 3, place >= keys - 2]),
        score_terms=tuple(terms),
        query_offset=0 if call.pooling is not None else middle - (queries - 1) // 2,
        dropout_p=DROPOUT if call.dropout_p else 0.0,
        return_lse=call.return_lse,
    )


def _small_count(term: UnseenTokens, num_pools: int, device: torch.device) -> UnseenTokens:
    """The term for so many pools, in each of which a token counts, with a window beyond which pools can be seen."""
    window, size = term.window, term.pooling.kernel_size
    place = torch.arange(num_pools * size - size // 2, device=device)
    near, first = (min(x, size * LEAST_REACH // 2) for x in (window.left, window.right)), place % size == 0
    return UnseenTokens(Window(*near), term.pooling, torch.stack([place % 5 > 0, place % 40 < 20]) | first)


def difference(run: Run, call: Call) -> str | None:
    """What a backend computes otherwise than the reference in the small problem of a call's kind; None for nothing."""
    small = small_call(call)
    exact = _in_float64(small)
    expected, *logs = _outputs(reference.run(replace(exact, dropout_p=0.0)))
    if small.dropout_p:
        kept, keep = _kept(run, small), KeepMask(DROPOUT, 0).keep
        share = float(kept[reference.visibility(small)].double().mean())
        if not abs(share - keep) <= 0.05:
            return f"dropout keeps {share:.0%} of the weights in place of {keep:.0%}"
        one_hot = _one_hot(exact, 0, exact.key.size(2))
        weights = reference.run(replace(exact, value=one_hot, dropout_p=0.0, return_lse=False))
        expected = (weights * kept / keep) @ exact.value
    outs, generator = _outputs(_run_with_one_seed(run, small)), torch.Generator().manual_seed(1)
    grads = [torch.randn(out.shape, generator=generator).to(out) for out in outs]
    exact_grads = [grad.double() for grad in grads]
    found = [*outs, *torch.autograd.grad(outs, _leaves(small), grads, materialize_grads=True)]
    rights = [expected, *logs]
    right = [*rights, *torch.autograd.grad(rights, _leaves(exact), exact_grads, materialize_grads=True)]
    names = ["query", "key", "value", *(name for term in small.score_terms for name in term_tensors(term))]
    names = ["the output", *["the logarithms"] * len(logs), *(f"the gradient of {name}" for name in names)]
    return next(_differences(names, found, right, _tolerance(small.query.dtype)), None)


def _tolerance(dtype: torch.dtype) -> float:
    rounded = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return TOLERANCE_OF_TF32 if rounded else TOLERANCES[dtype]


def _leaves(call: Call) -> list[Tensor]:
    return [call.query, call.key, call.value, *tensors_of(call.score_terms)]


def _differences(names: list[str], found: list[Tensor], right: list[Tensor], tolerance: float) -> Iterator[str]:
    for name, actual, expected in zip(names, found, right, strict=True):
        expected = expected.detach()
        size, error = expected.norm(dim=-1), (actual.detach().double() - expected).norm(dim=-1)
        # gradients are zero but for rounding where each query sees one key, or a table has one distance
        least = (expected.size(-1) * (LENGTH if expected.dim() == 2 else LEAST_SHARE)) ** 0.5
        worst = float((error / (size + size.mean()).clamp(min=least)).max())
        if not worst <= tolerance:  # nor is NaN
            yield f"{name} differs from the reference by {worst:.2g} of its size, more than the {tolerance:.2g} allowed"


def _in_float64(call: Call) -> Call:
    def double(x: Tensor) -> Tensor:
        return x.detach().double().requires_grad_()

    terms = (replace(term, **{name: double(x) for name, x in term_tensors(term).items()}) for term in call.score_terms)
    query, key, value = map(double, (call.query, call.key, call.value))
    return replace(call, query=query, key=key, value=value, score_terms=tuple(terms))


def _outputs(result: Tensor | tuple[Tensor, Tensor]) -> list[Tensor]:
    """The output, and (B, H, T, 1) the logarithms, 0 where a query sees nothing."""
    if isinstance(result, Tensor):
        return [result]
    return [result[0], result[1].masked_fill(result[1] == -torch.inf, 0.0).unsqueeze(-1)]


def _run_with_one_seed(run: Run, call: Call) -> Any:
    """Run a call with the same dropout each time; this process's next random numbers stay what they were."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(0)
    try:
        return run(call)
    finally:
        torch.default_generator.set_state(state)


def _one_hot(call: Call, first: int, count: int) -> Tensor:
    """Values (B, H, S, count), of which number d is 1 at key ``first + d``."""
    batch, heads, keys, _ = call.key.shape
    eye = torch.eye(keys, keys + count, dtype=call.key.dtype, device=call.key.device)
    return eye[:, first : first + count].expand(batch, heads, -1, -1)


@torch.no_grad()
def _kept(run: Run, call: Call) -> Tensor:
    """Which weights dropout keeps, (B, H, T, S) bool: those through which one-hot values reach the output."""
    keys, head_dim = call.key.shape[2:]
    values = (_one_hot(call, first, head_dim) for first in range(0, keys, head_dim))
    blocks = [replace(call, value=value, return_lse=False) for value in values]
    return torch.cat([_run_with_one_seed(run, block) for block in blocks], dim=3)[..., :keys] != 0.0

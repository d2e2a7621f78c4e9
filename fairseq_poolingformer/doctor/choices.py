"""Which backend each kind of call takes on a device, why not the faster ones, and what their self-checks find."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from fairseq_poolingformer.attention import BACKENDS, DisentangledPosition, Pooling, RelativePositionBias, Window
from fairseq_poolingformer.attention.call import DTYPES, Call
from fairseq_poolingformer.attention.functional import fastest_backend

HEADS, LENGTH, HEAD_DIM = 2, 64, 64
KINDS = (
    "level one",
    "level one, global tokens",
    "level one, padding",
    "level one, dropout",
    "level one, dilated",
    "level one, relative bias",
    "level one, disentangled",
    "level two",
    "level two, dropout",
    "level two, query-aligned",
    "full attention",
)


def calls(device: str, dtype: torch.dtype, head_dim: int = HEAD_DIM) -> dict[str, Call]:
    """A small call of each kind, with tensors that need gradients."""

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype, requires_grad=True)

    pooling = {"grid": Pooling(5, 4), "query": Pooling(5, 4, "query")}
    marked = torch.zeros(1, LENGTH, dtype=torch.bool, device=device)
    tables = (zeros(HEADS, 16, head_dim), zeros(HEADS, 16, head_dim))
    arguments = {
        "level one": {},
        "level one, global tokens": {"global_mask": marked.clone().index_fill(1, marked.new_zeros(1).long(), True)},
        "level one, padding": {"key_padding_mask": marked},
        "level one, dropout": {"dropout_p": 0.1},
        "level one, dilated": {"window": Window(8, 8, 2)},
        "level one, relative bias": {"score_terms": [RelativePositionBias(zeros(HEADS, 17))]},
        "level one, disentangled": {"score_terms": [DisentangledPosition(*tables)]},
        "level two": {"pooling": pooling["grid"]},
        "level two, dropout": {"pooling": pooling["grid"], "dropout_p": 0.1},
        "level two, query-aligned": {"pooling": pooling["query"]},
        "full attention": {"window": Window.unlimited()},
    }
    found = {}
    for kind, given in arguments.items():
        keys = given["pooling"].num_pools(LENGTH) if "pooling" in given else LENGTH
        tensors = (zeros(1, HEADS, n, head_dim) for n in (LENGTH, keys, keys))
        found[kind] = Call.of(*tensors, **{"window": Window(8), **given})
    return found


class Choices(NamedTuple):
    """The backend of each kind and dtype, and for each reason against another the kinds and dtypes that have it."""

    backends: dict[str, dict[torch.dtype, str]]
    refusals: dict[str, list[tuple[str, torch.dtype]]]


def choices(device: str) -> Choices:
    """Pick a backend for every kind of call in training, without self-checks."""
    found = Choices({}, {})
    for dtype in DTYPES:
        for kind, call in calls(device, dtype).items():
            name, refusals = fastest_backend(call, self_check=False)
            found.backends.setdefault(kind, {})[dtype] = name
            for refusal in refusals:
                found.refusals.setdefault(refusal, []).append((kind, dtype))
    return found


class Checked(NamedTuple):
    """A self-check: of which backend, kind and dtype; what went wrong, None for nothing; and its seconds."""

    backend: str
    kind: str
    dtype: torch.dtype
    failure: str | None
    seconds: float


def self_checks(device: str) -> Iterator[Checked]:
    """Run the self-check of every backend that has one, for every kind of call that it can run."""
    for name, module in BACKENDS.items():
        for dtype in DTYPES if hasattr(module, "self_check") else ():
            for kind, call in calls(device, dtype).items():
                if module.why_not(call) is None:
                    start = time.perf_counter()
                    yield Checked(name, kind, dtype, module.self_check(call), time.perf_counter() - start)

"""Small calls of the operator that together reach every variant of every Triton kernel, and their exact results."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    ScoreTerm,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends.triton import arguments, launches

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
# In units of error(), some more than in any call. The gradients of tables are sums of numbers that cancel: four times.
GREATEST_ERROR = {torch.bfloat16: 0.42, torch.float16: 0.42, torch.float32: 6.0}


@dataclass(frozen=True)
class KernelCall:
    """A call of the operator with random numbers; lengths are odd, and longer than a tile."""

    window: Window
    pooling: Pooling | None = None
    queries: int = 99
    keys: int = 99
    head_dim: int = 64
    heads: int = 1
    batch: int = 1
    global_tokens: tuple[int, ...] = ()
    padded: int = 0
    query_offset: int = 0
    dropout_p: float = 0.0
    distances: int = 0
    rows: tuple[int, int] | None = None
    small: bool = False
    split: bool = False

    def results(self, dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
        """The kernels' output and gradients, and the exact ones for the same numbers in float64, by name."""
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        inputs = {"query": draw(self.batch, self.heads, self.queries, self.head_dim)}
        inputs |= {name: draw(self.batch, self.heads, self.keys, self.head_dim) for name in ("key", "value")}
        if self.distances:
            inputs["bias"] = draw(self.heads, 2 * self.distances + 1)
        if self.rows:
            for prefix, k in zip(("", "global_"), self.rows, strict=True):
                inputs |= {f"{prefix}{name}": draw(self.heads, 2 * k, self.head_dim) for name in ("c2p", "p2c")}
        grad = draw(self.batch, self.heads, self.queries, self.head_dim)
        found = {name: x.clone().requires_grad_() for name, x in inputs.items()}
        exact = {name: x.double().requires_grad_() for name, x in inputs.items()}
        out = self._attend(found)
        exact_out = self._attend(exact, backend="reference") if not self.dropout_p else self._dropped(found, exact)
        found_all = out, *torch.autograd.grad(out, found.values(), grad)
        exact_all = exact_out, *torch.autograd.grad(exact_out, exact.values(), grad.double())
        return dict(zip(("out", *inputs), zip(found_all, exact_all, strict=True), strict=True))

    def _dropped(self, found: dict[str, Tensor], exact: dict[str, Tensor]) -> Tensor:
        """The exact output with the weights that the kernels keep, which one-hot values show."""
        one_hot = torch.eye(self.keys).expand(self.batch, self.heads, -1, -1)
        kept = self._attend({**found, "value": one_hot.to(found["value"].dtype)}) != 0
        weights = self._attend({**exact, "value": one_hot.double()}, backend="reference")
        return (weights * kept / (1 - round(self.dropout_p * 2**16) / 2**16)) @ exact["value"]

    def _attend(self, tensors: dict[str, Tensor], backend: str = "triton") -> Tensor:
        place = torch.arange(self.keys)[None].expand(self.batch, -1)
        row = torch.arange(self.batch)[:, None]
        given: dict[str, Any] = {"window": self.window, "pooling": self.pooling, "query_offset": self.query_offset}
        if self.global_tokens:
            given["global_mask"] = torch.isin(place, torch.tensor(self.global_tokens)) & (row <= max(0, self.batch - 2))
        if self.padded:
            given["key_padding_mask"] = (place >= self.keys - self.padded) & (row == 0)
        terms: list[ScoreTerm] = []
        if self.distances:
            terms.append(RelativePositionBias(tensors["bias"]))
        if self.rows:
            terms.append(DisentangledPosition(**{n: x for n, x in tensors.items() if "2" in n}, global_bucket=9))
        if backend == "triton":
            given["dropout_p"] = self.dropout_p
        torch.manual_seed(7)  # of the dropout
        with ExitStack() as stack:
            if self.small:
                launches.launches_of.cache_clear()  # they follow from the tiles
                stack.callback(launches.launches_of.cache_clear)
                stack.enter_context(patch.object(arguments, "STEPS_PER_SPLIT", 1 if self.split else 1000))
                stack.enter_context(patch.object(arguments, "tile_shape", lambda *_: arguments.TileShape(16, 16, 4, 1)))
            return band_attention(
                *(tensors[name] for name in ("query", "key", "value")), score_terms=terms, backend=backend, **given
            )


# in the order of importance
CALLS = {
    "window": KernelCall(Window(20)),
    "globals": KernelCall(Window(20), batch=2, global_tokens=(0, 37), padded=9),
    "pooled": KernelCall(Window(40), pooling=Pooling(5, 4), keys=Pooling(5, 4).num_pools(99)),
    "split": KernelCall(Window(40), small=True, split=True, heads=2),
    "dropout": KernelCall(Window(20), queries=70, keys=64, dropout_p=0.1, global_tokens=(3,)),
    "bias": KernelCall(Window(20), distances=8, global_tokens=(3,)),
    "positions": KernelCall(Window(9), rows=(12, 3), global_tokens=(3,), queries=45, keys=45),
    "dilated": KernelCall(Window(9, 9, (1, 2)), heads=2, global_tokens=(3,)),
    "wide": KernelCall(Window(20), head_dim=80, queries=70, keys=70),
    "causal": KernelCall(Window.unlimited(causal=True), queries=45, query_offset=54),
    "pooled by query": KernelCall(
        Window(40), pooling=Pooling(3, 2, "query"), keys=Pooling(3, 2, "query").num_pools(99)
    ),
    "steps": KernelCall(Window(250), queries=259, keys=259, head_dim=16, small=True),
}


def error(actual: Tensor, exact: Tensor) -> float:
    """The error in units of the dtype's epsilon and of the exact numbers' size, all root mean squares; NaN counts."""
    size = exact.detach().square().mean().sqrt() * torch.finfo(actual.dtype).eps
    return float((actual.detach().double() - exact.detach()).square().mean().sqrt() / size)

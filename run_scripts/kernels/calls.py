"""Small calls of the operator that together reach every variant of every Triton kernel, and their exact results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Masks,
    Pooling,
    RelativePositionBias,
    ScoreTerm,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.triton import arguments as arguments_of_kernels
from fairseq_poolingformer.attention.backends.triton import backend, launches
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.one_softmax import share_of_pools
from fairseq_poolingformer.attention.pooling import pool, pool_pair
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
# In units of error(), some more than in any call. The gradients of tables are sums of numbers that cancel: four times.
GREATEST_ERROR = {torch.bfloat16: 0.42, torch.float16: 0.42, torch.float32: 6.0}


class Problem(ABC):
    """A computation with random numbers, by the kernels and exactly; lengths are odd, and longer than a tile."""

    def results(self, dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
        """The kernels' output and gradients, and the exact ones for the same numbers in float64, by name."""
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        inputs = self.inputs(draw)
        copies = {name: x.clone().requires_grad_() for name, x in inputs.items()}
        exact = {name: x.double().requires_grad_() for name, x in inputs.items()}
        outs = self.by_kernels(copies), self.exactly(exact, copies)
        grad = draw(*outs[0].shape)
        pairs = zip(outs, (copies, exact), strict=True)
        results = ([out, *torch.autograd.grad(out, x.values(), grad.to(out))] for out, x in pairs)
        return dict(zip(("out", *inputs), zip(*results, strict=True), strict=True))

    @abstractmethod
    def inputs(self, draw: Callable[..., Tensor]) -> dict[str, Tensor]:
        """The tensors of the computation, each drawn by its shape."""

    @abstractmethod
    def by_kernels(self, tensors: dict[str, Tensor]) -> Tensor:
        """The output of the kernels."""

    @abstractmethod
    def exactly(self, exact: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        """The output in float64; ``tensors`` are those of :meth:`by_kernels`."""


@dataclass(frozen=True)
class KernelCall(Problem):
    """A call of the operator."""

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

    def inputs(self, draw: Callable[..., Tensor]) -> dict[str, Tensor]:
        inputs = {"query": draw(self.batch, self.heads, self.queries, self.head_dim)}
        inputs |= {name: draw(self.batch, self.heads, self.keys, self.head_dim) for name in ("key", "value")}
        if self.distances:
            inputs["bias"] = draw(self.heads, 2 * self.distances + 1)
        if self.rows:
            for prefix, k in zip(("", "global_"), self.rows, strict=True):
                inputs |= {f"{prefix}{name}": draw(self.heads, 2 * k, self.head_dim) for name in ("c2p", "p2c")}
        return inputs

    def by_kernels(self, tensors: dict[str, Tensor]) -> Tensor:
        return self._attend(tensors, "triton", self.dropout_p)

    def exactly(self, exact: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        if not self.dropout_p:
            return self._attend(exact, "reference")
        # with the weights that the kernels keep, which one-hot values show
        one_hot = torch.eye(self.keys).expand(self.batch, self.heads, -1, -1)
        keep_mask = self.by_kernels({**tensors, "value": one_hot.to(tensors["value"].dtype)}) != 0
        weights = self._attend({**exact, "value": one_hot.double()}, "reference")
        return (weights * keep_mask / (1 - round(self.dropout_p * 2**16) / 2**16)) @ exact["value"]

    def _attend(self, tensors: dict[str, Tensor], backend: str, dropout_p: float = 0.0) -> Tensor:
        place = torch.arange(self.keys)[None].expand(self.batch, -1)
        row = torch.arange(self.batch)[:, None]
        arguments: dict[str, Any] = {"window": self.window, "pooling": self.pooling, "dropout_p": dropout_p}
        if self.global_tokens:
            is_global = torch.isin(place, torch.tensor(self.global_tokens))
            arguments["global_mask"] = is_global & (row <= max(0, self.batch - 2))
        if self.padded:
            arguments["key_padding_mask"] = (place >= self.keys - self.padded) & (row == 0)
        terms: list[ScoreTerm] = []
        if self.distances:
            terms.append(RelativePositionBias(tensors["bias"]))
        if self.rows:
            terms.append(DisentangledPosition(**{n: x for n, x in tensors.items() if "2" in n}, global_bucket=9))
        arguments |= {"score_terms": terms, "query_offset": self.query_offset, "backend": backend}
        torch.manual_seed(7)  # of the dropout
        with ExitStack() as stack:
            if self.small:
                launches.launches_of.cache_clear()  # they follow from the tiles
                stack.callback(launches.launches_of.cache_clear)
                stack.enter_context(patch.object(arguments_of_kernels, "STEPS_PER_SPLIT", 1 if self.split else 1000))
                shape = arguments_of_kernels.TileShape(16, 16, 4, 1)
                stack.enter_context(patch.object(arguments_of_kernels, "tile_shape", lambda *_: shape))
            return band_attention(*(tensors[name] for name in ("query", "key", "value")), **arguments)


@dataclass(frozen=True)
class OneSoftmax(Problem):
    """One softmax over tokens and pools, with a global token and padding; exactly by two calls, which are merged."""

    near: Window
    far: Window
    pooling: Pooling
    tokens: int = 99
    head_dim: int = 64

    def inputs(self, draw: Callable[..., Tensor]) -> dict[str, Tensor]:
        pools = self.pooling.num_pools(self.tokens)
        lengths = dict.fromkeys(("query", "key", "value"), self.tokens) | {"pool_key": pools, "pool_value": pools}
        return {name: draw(1, 1, length, self.head_dim) for name, length in lengths.items()}

    def by_kernels(self, tensors: dict[str, Tensor]) -> Tensor:
        return backend.run_both(*self._calls(tensors))

    def exactly(self, exact: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        tokens, pools = self._calls(exact)
        (y, lse), (pooled, pools_lse) = reference.run(tokens), reference.run(pools)
        return torch.lerp(y, pooled, share_of_pools(lse, pools_lse, tokens.masks))

    def _calls(self, tensors: dict[str, Tensor]) -> tuple[Call, Call]:
        query, key, value, *pools = tensors.values()
        place = torch.arange(self.tokens)[None]
        masks = Masks(place == 37, place >= self.tokens - 9)
        unseen = UnseenTokens.of(masks, self.near, self.pooling, (1, self.tokens), query.device)
        of_pools = {"pooling": self.pooling, "masks": unseen.masks, "score_terms": (unseen,)}
        return (
            Call.of(query, key, value, window=self.near, masks=masks, return_lse=True),
            Call.of(query, *pools, window=self.far, return_lse=True, **of_pools),
        )


@dataclass(frozen=True)
class PoolsProblem(Problem):
    """Pools of keys and values of one layer, with padding; exactly by PyTorch."""

    pooling: Pooling
    kind: str
    tokens: int = 75
    heads: int = 2
    head_dim: int = 64

    def inputs(self, draw: Callable[..., Tensor]) -> dict[str, Tensor]:
        inputs = {name: draw(1, self.heads, self.tokens, self.head_dim) for name in ("key", "value")}
        if self.kind != "mean":
            inputs["weight"] = draw(2, self.pooling.kernel_size, self.heads * self.head_dim) / 8
            inputs["bias"] = draw(2, self.pooling.kernel_size)
        return inputs

    def by_kernels(self, tensors: dict[str, Tensor]) -> Tensor:
        weights = tensors.get("weight"), tensors.get("bias")
        return pool_pair(tensors["key"], tensors["value"], self.pooling, self.kind, self._masks(), weights)

    def exactly(self, exact: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        pools = []
        for n, name in enumerate(("key", "value")):
            weight, bias = (exact[x][n] if x in exact else None for x in ("weight", "bias"))
            pools.append(pool(exact[name], self.pooling, self.kind, self._masks(), weight, bias))
        return torch.stack(pools)

    def _masks(self) -> Masks:
        place = torch.arange(self.tokens)[None]
        return Masks(None, (place >= self.tokens - 9) | (place == 30))


# in the order of importance
CALLS: dict[str, Problem] = {
    "window": KernelCall(Window(20)),
    "globals": KernelCall(Window(20), batch=2, global_tokens=(0, 37), padded=9),
    "pooled": KernelCall(Window(40), pooling=Pooling(5, 4), keys=Pooling(5, 4).num_pools(99)),
    "split": KernelCall(Window(40), small=True, split=True, heads=2),
    "dropout": KernelCall(Window(20), queries=70, keys=64, dropout_p=0.1, global_tokens=(3,)),
    "one softmax": OneSoftmax(Window(9), Window(60), Pooling(4, 4)),
    "pools": PoolsProblem(Pooling(5, 4), "ldconv"),
    "pools of means": PoolsProblem(Pooling(4, 4), "mean"),
    "pools by means": PoolsProblem(Pooling(5, 4), "mean-ldconv"),
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

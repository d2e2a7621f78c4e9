"""Poolingformer's self-attention in numpy, token by token, from the papers' equations and without this package.

P is the ICML paper (Zhang et al. 2021), T the thesis (Li 2021); docs/papers.md explains the readings. A sequence has no
padding here: a padded row is compared with its real tokens alone. Weights have the names of the module's state dict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """One layer: sizes, windows and weights.

    Args:
        weights: arrays by the names of the module's state dict.
        heads: H.
        w1, w2: tokens on each side of the two windows; None for a layer without level two.
        kernel_size, stride: κ and ξ.
        kind: mean, max, ldconv or mean-ldconv.
        alignment: grid or query.
        mix, share: Mix, and weight sharing of the two levels.
        is_global: the global tokens, by their positions.
        relative: k, k_g's bucket and the tables P, P_g of the fusion; empty without.
    """

    weights: dict[str, Array]
    heads: int
    w1: int
    w2: int | None = None
    kernel_size: int = 1
    stride: int = 1
    kind: str = "mean"
    alignment: str = "grid"
    mix: bool = False
    share: bool = False
    is_global: frozenset[int] = frozenset()
    relative: dict[str, Array | int] = field(default_factory=dict)

    def project(self, name: str, x: Array) -> Array:
        bias = self.weights.get(f"{name}.bias", 0.0)
        return x @ self.weights[f"{name}.weight"].T + bias

    def __call__(self, x: Array) -> Array:
        """(n, C) to (n, C): W_o(Y + Z), T 2.15."""
        y = self.level_one(x)
        z = 0.0 if self.w2 is None else self.level_two(x if self.mix else y)
        return self.project("out_proj", y + z)

    def level_one(self, x: Array) -> Array:
        """Y, P eq. 1–4, and eq. 12–13 for global tokens."""
        q, k, v = (self.project(name, x) for name in ("q_proj", "k_proj", "v_proj"))
        rows = []
        for i in range(len(x)):
            near = {j for j in range(i - self.w1, i + self.w1 + 1) if 0 <= j < len(x)}
            field_of_i = sorted(range(len(x)) if i in self.is_global else near | self.is_global)
            if i in self.is_global and "global_q_proj.weight" in self.weights:  # Longformer §3.1
                own = (self.project(f"global_{name}", x) for name in ("q_proj", "k_proj", "v_proj"))
                rows.append(self.attend(*own, i, field_of_i))
            else:
                rows.append(self.attend(q, k, v, i, field_of_i))
        return np.stack(rows)

    def attend(self, q: Array, k: Array, v: Array, i: int, seen: list[int]) -> Array:
        """softmax(α q_i Kᵀ) V over the keys ``seen``, head by head (P eq. 4)."""
        width = q.shape[1] // self.heads
        out = []
        for h in range(self.heads):
            one = slice(h * width, (h + 1) * width)
            scores = [self.score(q[i, one], k[j, one], i, j, one) for j in seen]
            out.append(softmax(np.array(scores)) @ v[seen, one])
        return np.concatenate(out)

    def score(self, q: Array, k: Array, i: int, j: int, head: slice) -> float:
        """α q·k; with relative positions T 2.18–2.22, and T 2.25 for global tokens."""
        if not self.relative:
            return float(q @ k) / math.sqrt(len(q))
        if i in self.is_global or j in self.is_global:
            table, prefix = self.relative["coarse"], "global_"
            distance = (i - j) // self.relative["bucket"]
        else:
            table, prefix, distance = self.relative["fine"], "", i - j
        reach = len(table) // 2
        row = 0 if distance <= -reach else 2 * reach - 1 if distance >= reach else distance + reach
        as_key = self.project(f"{prefix}relative_k_proj", table[row])[head]
        as_query = self.project(f"{prefix}relative_q_proj", table[row])[head]
        return float(q @ k + q @ as_key + k @ as_query) / math.sqrt(3 * len(q))

    def level_two(self, x: Array) -> Array:
        """Z, P eq. 5–8."""
        prefix = "" if self.share else "pooled_"
        q, k, v = (self.project(prefix + name, x) for name in ("q_proj", "k_proj", "v_proj"))
        width = q.shape[1] // self.heads
        rows = []
        for i in range(len(x)):
            pools = self.pools_of(i, len(x))
            keys = np.stack([self.pool(k, pool, "pooled_k_pool_weight") for pool in pools])
            values = np.stack([self.pool(v, pool, "pooled_v_pool_weight") for pool in pools])
            out = []
            for h in range(self.heads):
                one = slice(h * width, (h + 1) * width)
                out.append(softmax(keys[:, one] @ q[i, one] / math.sqrt(width)) @ values[:, one])
            rows.append(np.concatenate(out))
        return np.stack(rows)

    def pools_of(self, i: int, n: int) -> list[dict[int, int]]:
        """The pools that query i sees: for each its positions 1 … κ that hold a token, and these tokens."""
        if self.alignment == "query":  # P eq. 6–7: cut from the left edge of its own window
            starts = range(i - self.w2, i + self.w2 - self.kernel_size + 2, self.stride)
        else:
            starts = [s for s in range(0, n, self.stride) if abs(s + (self.kernel_size - 1) / 2 - i) <= self.w2]
        pools = [{p: s + p - 1 for p in range(1, self.kernel_size + 1) if 0 <= s + p - 1 < n} for s in starts]
        return [pool for pool in pools if pool]

    def pool(self, x: Array, pool: dict[int, int], weight: str) -> Array:
        """Mean, max, LDConv (P eq. 9–10) or mean-LDConv (P eq. 11) of a pool's vectors."""
        vectors = x[list(pool.values())]
        if self.kind == "mean":
            return vectors.mean(0)
        if self.kind == "max":
            return vectors.max(0)
        centre = math.ceil((1 + self.kernel_size) / 2)
        nearest = max((p for p in pool if p <= centre), default=min(pool))
        context = vectors.mean(0) if self.kind == "mean-ldconv" else x[pool[nearest]]
        logits = (self.weights[weight] @ context).reshape(-1, self.kernel_size)  # a row for each set of weights
        channels = np.split(np.arange(x.shape[1]), len(logits))
        deltas = [softmax(row[[p - 1 for p in pool]]) for row in logits]
        return np.concatenate([delta @ vectors[:, own] for delta, own in zip(deltas, channels, strict=True)])


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max())
    return weights / weights.sum()

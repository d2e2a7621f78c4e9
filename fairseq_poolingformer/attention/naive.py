"""Poolingformer's self-attention, a token at a time, from the equations: read this first, then modules.py.

Equations are those of Zhang et al. (ICML 2021), T 2.15 is the thesis's (Li 2021). One sequence, no padding, no speed.
``python -m fairseq_poolingformer.attention.naive`` shows who sees whom, and compares the layer with the fast one.
"""

from math import ceil, log, sqrt

import torch
from torch import Tensor, nn


class NaiveAttention(nn.Module):
    """The layer of ``TwoLevelAttention``, with the same names of parameters.

    Args:
        d, heads: the channels, and how many heads share them.
        w1, w2: tokens seen on each side; ``w2`` None for level one alone. kappa, xi: κ tokens a pool, ξ apart.
        kind: mean, max, ldconv or mean-ldconv.
        alignment: pools start at multiples of ξ ("grid"), or at the edge of each query's own window ("query").
        mix, share: level two reads X in place of Y; both levels have one W_q, W_k, W_v.
        merge: "sum" for the paper's Y + Z, or "softmax" for one softmax over tokens and pools of level one's keys.
    """

    def __init__(
        self, d, heads, w1, w2=None, kappa=5, xi=4, kind="ldconv", alignment="grid", mix=False, share=False, merge="sum"
    ):
        super().__init__()
        self.heads, self.w1, self.w2, self.kappa, self.xi = heads, w1, w2, kappa, xi
        self.kind, self.alignment, self.mix, self.merge = kind, alignment, mix, merge
        self.one, self.out_proj = ["q_proj", "k_proj", "v_proj"], nn.Linear(d, d)
        self.two = self.one if share or merge == "softmax" else [f"pooled_{name}" for name in self.one]
        for name in self.one + (self.two if w2 is not None else []):
            self.add_module(name, nn.Linear(d, d))
        if w2 is not None and "ldconv" in kind:  # keys and values have a W_p each
            self.pooled_k_pool_weight = nn.Parameter(0.02 * torch.randn(kappa, d))
            self.pooled_v_pool_weight = nn.Parameter(0.02 * torch.randn(kappa, d))

    def forward(self, x: Tensor, global_tokens: frozenset[int] = frozenset()) -> Tensor:
        """(n, d) to (n, d)."""
        n = len(x)
        q, k, v = (self.get_submodule(name)(x) for name in self.one)  # eq. 1
        seen = [self.tokens_seen(i, n, global_tokens) for i in range(n)]  # N_G(i, w1)
        if self.merge == "softmax":
            return self.out_proj(torch.stack([self.attend_once(i, q[i], k, v, seen[i]) for i in range(n)]))
        y = torch.stack([self.attend(q[i], k[seen[i]], v[seen[i]]) for i in range(n)])  # eq. 13; eq. 4 without globals
        if self.w2 is None:
            return self.out_proj(y)
        q, k, v = (self.get_submodule(name)(x if self.mix else y) for name in self.two)  # eq. 5
        z = torch.zeros_like(y)
        for i in range(n):
            if starts := self.pools_seen(i, n):
                keys = torch.stack([self.pool(k, start, "pooled_k_pool_weight") for start in starts])  # eq. 6
                values = torch.stack([self.pool(v, start, "pooled_v_pool_weight") for start in starts])  # eq. 7
                z[i] = self.attend(q[i], keys, values)  # eq. 8
        return self.out_proj(y + z)  # T 2.15: W_o(Y + Z)

    def tokens_seen(self, i: int, n: int, global_tokens: frozenset[int]) -> list[int]:
        near = {j for j in range(n) if abs(i - j) <= self.w1}  # eq. 3
        return sorted(set(range(n)) if i in global_tokens else near | global_tokens)  # eq. 12

    def attend(self, q: Tensor, k: Tensor, v: Tensor, log_counts: Tensor | float = 0.0) -> Tensor:
        q, k, v = (x.unflatten(-1, (self.heads, -1)) for x in (q, k, v))  # each head has its own d / heads channels
        scores = torch.einsum("hd,jhd->hj", q, k) / sqrt(q.size(-1)) + log_counts  # α qᵀK
        return torch.einsum("hj,jhd->hd", scores.softmax(-1), v).flatten()  # Softmax(α qᵀK) Vᵀ

    def attend_once(self, i: int, q: Tensor, k: Tensor, v: Tensor, seen: list[int]) -> Tensor:
        """One softmax over tokens and pools, each pool weighted by its number of tokens outside w1 (0: masked)."""
        unseen = {s: len(set(range(s, min(s + self.kappa, len(k)))) - set(seen)) for s in self.pools_seen(i, len(k))}
        pools = {start: count for start, count in unseen.items() if count}
        keys = torch.stack([*k[seen], *(self.pool(k, start, "pooled_k_pool_weight") for start in pools)])
        values = torch.stack([*v[seen], *(self.pool(v, start, "pooled_v_pool_weight") for start in pools)])
        return self.attend(q, keys, values, q.new_tensor([0.0] * len(seen) + [log(count) for count in pools.values()]))

    def pools_seen(self, i: int, n: int) -> list[int]:
        """Where the pools that query i sees start; one that reaches beyond the sequence has fewer tokens."""
        if self.alignment == "query":  # eq. 6–7 to the letter: cut from the left edge of N(i, w2)
            starts = list(range(i - self.w2, i + self.w2 - self.kappa + 2, self.xi))
        else:  # the same pools for all queries, so that each is pooled once: those whose centre is within w2
            starts = [s for s in range(0, n, self.xi) if abs(s + (self.kappa - 1) / 2 - i) <= self.w2]
        return [s for s in starts if s < n and s + self.kappa > 0]

    def pool(self, v: Tensor, start: int, weight: str) -> Tensor:
        tokens = [j for j in range(start, start + self.kappa) if 0 <= j < len(v)]
        if self.kind in ("mean", "max"):
            return v[tokens].mean(0) if self.kind == "mean" else v[tokens].amax(0)
        centre = start + ceil((1 + self.kappa) / 2) - 1  # which the end of the sequence may cut off
        context = v[tokens].mean(0) if self.kind == "mean-ldconv" else v[min(max(centre, tokens[0]), tokens[-1])]
        delta = (getattr(self, weight) @ context)[[j - start for j in tokens]].softmax(0)  # eq. 10; eq. 11 of the mean
        return delta @ v[tokens]  # eq. 9


if __name__ == "__main__":
    from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window

    naive, n, first = NaiveAttention(16, 2, w1=3, w2=12).double(), 40, frozenset({0})
    fast = TwoLevelAttention(16, 2, window=Window(3), pooled_window=Window(12), pooling=Pooling(5, 4)).double()
    fast.load_state_dict(naive.state_dict())
    x, mask = torch.randn(n, 16, dtype=torch.float64), torch.arange(n)[None] == 0
    print("token 20 of 40, of which the first is global, sees the tokens", *naive.tokens_seen(20, n, first))
    print("and the pools of tokens", *(f"{start}-{start + 4}" for start in naive.pools_seen(20, n)))
    difference = (naive(x, first) - fast(x[None], global_mask=mask)[0]).abs().max()
    print(f"largest difference from TwoLevelAttention: {difference:.1e}")

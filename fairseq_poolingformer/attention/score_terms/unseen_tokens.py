"""How many of a pool's tokens level one does not show a query, for one softmax over tokens and pools."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.call import Call, Pairs, ScoreTerm
from fairseq_poolingformer.attention.compiler import lazy_property
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, Window


@dataclass(frozen=True)
class UnseenTokens(ScoreTerm):
    """``score[b, i, p] = log c``, c the tokens of pool p that count and lie outside of query i's window.

    With it a pooled key has the weight of c tokens; where c is 0, it is hidden.

    Args:
        window: level one's, not dilated.
        pooling: κ = ξ, on the grid.
        counted: (B, S) bool, True at the tokens that count: real ones that are not global, which every query sees.
    """

    window: Window
    pooling: Pooling
    counted: Tensor

    @staticmethod
    def of(
        masks: Masks, window: Window, pooling: Pooling, shape: tuple[int, int], device: torch.device
    ) -> UnseenTokens:
        """The term of a batch of (B, S) tokens."""
        counted = torch.ones(shape, dtype=torch.bool, device=device) if masks.padding is None else ~masks.padding
        return UnseenTokens(window, pooling, counted if masks.global_mask is None else counted & ~masks.global_mask)

    @lazy_property
    def masks(self) -> Masks:
        """The masks of the pools: those of which no token counts are hidden."""
        return Masks(None, self.empty)

    def why_not(self, call: Call) -> str | None:
        if call.pooling != self.pooling or call.key.size(2) != self.of_pool.size(1):
            return f"it counts {self.of_pool.size(1)} pools of {self.pooling}; the call has {call.key.size(2)} keys"
        return None

    @lazy_property
    def of_pool(self) -> Tensor:
        """(B, P) the tokens of each pool that count, wherever the query is."""
        size, num_tokens = self.pooling.kernel_size, self.counted.size(1)
        start = size * torch.arange(self.pooling.num_pools(num_tokens), device=self.counted.device)
        return self.before[:, (start + size).clamp(max=num_tokens)] - self.before[:, start]

    @lazy_property
    def empty(self) -> Tensor:
        """(B, P) bool, True at pools of which no token counts."""
        return self.of_pool == 0

    @lazy_property
    def partial(self) -> Tensor:
        """(P,) bool, on the CPU: pools of which in some row some tokens count, and some do not."""
        return ((self.of_pool > 0) & (self.of_pool < self.pooling.kernel_size)).any(0).cpu()

    @lazy_property
    def before(self) -> Tensor:
        """(B, S + 1) int32, the tokens before each place that count."""
        return F.pad(self.counted.cumsum(1, dtype=torch.int32), (1, 0))

    def scores(self, pairs: Pairs) -> Tensor:
        """(B, 1, t, s)."""
        counts = self.counts(*pairs.places(self.counted.device))
        dtype = torch.float32 if pairs.query is None else torch.promote_types(pairs.query.dtype, torch.float32)
        return counts.to(dtype).log()[:, None]

    def counts(self, position: Tensor, start: Tensor, rows: slice = slice(None)) -> Tensor:
        """(B, t, s) c, of queries at positions (t, 1) and pools that start at tokens (1, s)."""
        first, stop = self._shown(position, start)
        last, before = self.counted.size(1), self.before[rows]
        ends = (x.clamp(0, last) for x in (start, start + self.pooling.kernel_size, first, stop))
        begin, end, first, stop = (before[:, x] for x in ends)
        return end - begin - (stop - first)

    def whole_counts(self, position: Tensor, start: Tensor) -> Tensor:
        """(t, s) c of pools of which all tokens count."""
        first, stop = self._shown(position, start)
        return self.pooling.kernel_size - (stop - first)

    def _shown(self, position: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of each pool that lie in the window: the first, and the one behind the last."""
        first = start.maximum(position - self.window.left)
        stop = (start + self.pooling.kernel_size).minimum(position + self.window.right + 1)
        return first, stop.maximum(first)

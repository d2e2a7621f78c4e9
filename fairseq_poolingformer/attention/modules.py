"""Poolingformer's two-level self-attention as a module."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention.call import ScoreTerm
from fairseq_poolingformer.attention.compiler import exporting
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling, Window, band_of
from fairseq_poolingformer.attention.plain_linear import is_plain_linear
from fairseq_poolingformer.attention.pooling import POOL_MERGES, POOL_TYPES, pool_keys
from fairseq_poolingformer.attention.probabilities import LevelWeights, band_weights
from fairseq_poolingformer.attention.rotary import Rotary, turned
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens


class TwoLevelAttention(nn.Module):
    """Sliding-window attention with global tokens, then pooling attention over a wider window (eq. 1–13, T 2.15).

    Level one gives Y. With ``pooling``, level two projects Y again, pools the keys and values, and attends to the
    pooled keys, which gives Z. The output is ``W_o(Y + Z)``.

    Projections are initialized as :class:`torch.nn.Linear` does, W_p of the LDConv kinds from N(0, 0.02²), so that the
    dynamic weights start close to a mean.

    Args:
        embed_dim: C.
        num_heads: H, a divisor of C.
        window: level one's window, w1.
        pooled_window: level two's window in tokens, w2; given together with ``pooling``.
        pooling: level two's kernel size κ, stride ξ and alignment; None for level one alone.
        pool_type: one of :data:`~fairseq_poolingformer.attention.POOL_TYPES`.
        ldconv_heads: sets of dynamic weights of the LDConv kinds.
        mix: level two projects the layer's input X instead of Y.
        share_weights: level two uses level one's projections W_q, W_k, W_v.
        pool_merge: ``"sum"``, the papers' Y + Z; or ``"softmax"``: one softmax over tokens and pools (mean or LDConv)
            of level one's own keys and values, without other projections. A pool counts as often as it has real tokens
            that level one does not show the query; where a pool's tokens are equal, the result is that of full
            attention within w2.
        separate_global_projections: global tokens attend with projections of their own (Longformer §3.1).
        scale: level one's α; 1/sqrt(D) by default, which level two always has.
        bias: the projections have one.
        dropout: probability of dropping an attention weight in training, and where ``retain_dropout`` is set.
        backend: see :func:`~fairseq_poolingformer.attention.band_attention`.
        batch_first: inputs are (B, T, C) instead of (T, B, C).

    Raises:
        ValueError: an argument is out of range, or some do not go together.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        window: Window,
        pooled_window: Window | None = None,
        pooling: Pooling | None = None,
        pool_type: str = "ldconv",
        ldconv_heads: int = 1,
        mix: bool = False,
        share_weights: bool = False,
        pool_merge: str = "sum",
        separate_global_projections: bool = False,
        scale: float | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        backend: str | None = None,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}")
        if (pooling is None) != (pooled_window is None):
            raise ValueError("give pooling and pooled_window together, or neither of them for level one alone")
        if pool_type not in POOL_TYPES:
            raise ValueError(f"pool_type must be one of {POOL_TYPES}, got {pool_type!r}")
        if ldconv_heads < 1 or num_heads % ldconv_heads:
            raise ValueError(f"ldconv_heads must divide {num_heads} heads, got {ldconv_heads}")
        if pool_merge not in POOL_MERGES:
            raise ValueError(f"pool_merge must be one of {POOL_MERGES}, got {pool_merge!r}")
        self.one_softmax = pooling is not None and pool_merge == "softmax"
        others = pool_type == "max" or mix or set(window.head_dilations(num_heads)) != {1}
        if self.one_softmax and (others or pooling != Pooling(pooling.stride, pooling.stride)):
            raise ValueError(
                "pool_merge 'softmax' counts every token once and has no projections of its own: it takes pools "
                "on the grid that are as wide as their stride, no maxima, no mix and no dilation; got "
                f"{pool_type!r}, {pooling}, {mix} and {window.dilation}"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.window, self.pooled_window, self.pooling = window, pooled_window, pooling
        self.pool_type, self.ldconv_heads, self.mix = pool_type, ldconv_heads, mix
        self.scale, self.dropout, self.backend, self.batch_first = scale, dropout, backend, batch_first
        self.retain_dropout = False

        def linear() -> nn.Linear:
            return nn.Linear(embed_dim, embed_dim, bias=bias)

        self.q_proj, self.k_proj, self.v_proj, self.out_proj = linear(), linear(), linear(), linear()
        self.global_q_proj = self.global_k_proj = self.global_v_proj = None
        if separate_global_projections:
            self.global_q_proj, self.global_k_proj, self.global_v_proj = linear(), linear(), linear()
        self.pooled_q_proj = self.pooled_k_proj = self.pooled_v_proj = None
        if pooling is not None and not share_weights and not self.one_softmax:
            self.pooled_q_proj, self.pooled_k_proj, self.pooled_v_proj = linear(), linear(), linear()
        self.pooled_k_pool_weight = self.pooled_v_pool_weight = None
        if pooling is not None and pool_type in ("ldconv", "mean-ldconv"):
            shape = (ldconv_heads * pooling.kernel_size, embed_dim)
            self.pooled_k_pool_weight = nn.Parameter(0.02 * torch.randn(shape))
            self.pooled_v_pool_weight = nn.Parameter(0.02 * torch.randn(shape))

    def extra_repr(self) -> str:
        levels = f"window={self.window}"
        if self.pooling is not None:
            levels += f", pooled_window={self.pooled_window}, pooling={self.pooling}, pool_type={self.pool_type}"
            levels += ", pool_merge=softmax" * self.one_softmax
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, {levels}"

    def forward(
        self,
        x: Tensor,
        *,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
        score_terms: tuple[ScoreTerm, ...] = (),
        rotary: Rotary | None = None,
    ) -> Tensor:
        """Attend within the sequence.

        Args:
            x: (B, T, C), or (T, B, C) without ``batch_first``.
            global_mask: (B, T) bool, True at global tokens, or the :class:`GlobalTokens` of such a mask.
            key_padding_mask: (B, T) bool, True at padding.
            score_terms: terms that are added to level one's scores.
            rotary: positions by which queries and keys are turned, pooled keys by those of their pools.

        Returns:
            The shape of ``x``.

        Raises:
            ValueError: score terms with separate global projections, which have none of their own, or with one softmax
                others than :class:`RelativePositionBias`.
        """
        dropout_p, query = self.dropout_p, turned(self._split(self.q_proj(x)), rotary)
        of_one = self._split(self.k_proj(x)), self._split(self.v_proj(x))
        masks = GlobalTokens.of(global_mask), key_padding_mask
        y = self._level_one(x, query, *of_one, *masks, score_terms, dropout_p, rotary)
        if self.pooling is None or self.one_softmax:
            return self.out_proj(self._merge(y))
        source: Tensor | tuple[Tensor, Tensor] = (
            of_one  # both levels have the same queries, and of each token the same key
        )
        if not self.mix or self.pooled_q_proj is not None:
            source = x if self.mix else self._merge(y)
            query = turned(self._split(self._pooled_projections()[0](source)), rotary)
        z = self._attend_to_pooled(source, query, key_padding_mask, dropout_p, rotary)
        return self.out_proj(self._merge(y + z))

    @property
    def dropout_p(self) -> float:
        """The probability of dropping an attention weight now."""
        return self.dropout if self.training or self.retain_dropout else 0.0

    def weights(
        self,
        x: Tensor,
        *,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
        score_terms: tuple[ScoreTerm, ...] = (),
        rotary: Rotary | None = None,
    ) -> LevelWeights:
        """The attention weights of both levels in banded form, without dropout; arguments as :meth:`forward`'s."""
        global_tokens = GlobalTokens.of(global_mask)
        masks = {"global_mask": global_tokens, "key_padding_mask": key_padding_mask}
        query_of_one, key_of_one = (self._split(projection(x)) for projection in (self.q_proj, self.k_proj))
        query_of_one, key = turned(query_of_one, rotary), turned(key_of_one, rotary)
        one = band_weights(query_of_one, key, window=self.window, score_terms=score_terms, scale=self.scale, **masks)
        if self.global_q_proj is not None and global_tokens is not None and global_tokens.num_slots:
            query = self._global_query(x, global_tokens, rotary)
            own_key = turned(self._split(self.global_k_proj(x)), rotary)
            own = band_weights(
                query, own_key, window=Window.unlimited(), key_padding_mask=key_padding_mask, scale=self.scale
            )
            one = one._replace(from_global=own.band.masked_fill(global_tokens.unused[:, None, :, None], 0.0))
        if self.pooling is None:
            return LevelWeights(one, None)
        if self.one_softmax:
            pools = self._pools(key_of_one, global_tokens, key_padding_mask, score_terms, rotary)
            near: dict[str, Any] = {"window": self.window, "score_terms": score_terms, "scale": self.scale, **masks}
            lse = band_attention(query_of_one, key, key, return_lse=True, **near)[1]
            far_lse = band_attention(query_of_one, value=pools["key"], return_lse=True, **pools)[1]
            share, two = self._share_of_pools(lse, far_lse, global_tokens), band_weights(query_of_one, **pools)
            one = one._replace(band=one.band * (1 - share), to_global=one.to_global * (1 - share))
            return LevelWeights(one, two._replace(band=two.band * share))
        source = x
        if not self.mix:
            masks_of_one = (global_tokens, key_padding_mask, score_terms, 0.0, rotary)
            value = self._split(self.v_proj(x))
            source = self._merge(self._level_one(x, query_of_one, key_of_one, value, *masks_of_one))
        q_proj, k_proj, _ = self._pooled_projections()
        query = turned(self._split(q_proj(source)), rotary)
        pooled_keys, pooled_padding = self._pool(source, k_proj, self.pooled_k_pool_weight, key_padding_mask)
        pooled_keys = turned(pooled_keys, rotary, query.size(2))
        geometry = {"window": self.pooled_window, "pooling": self.pooling}
        return LevelWeights(one, band_weights(query, pooled_keys, key_padding_mask=pooled_padding, **geometry))

    def _level_one(
        self,
        x: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        global_tokens: GlobalTokens | None,
        padding_mask: Tensor | None,
        score_terms: tuple[ScoreTerm, ...],
        dropout_p: float,
        rotary: Rotary | None,
    ) -> Tensor:
        """Level one's Y (eq. 3–4, 12–13), (B, H, T, D), from keys not yet turned; with one softmax of pools, too."""
        self.check_score_terms(score_terms)
        has_pools = self.one_softmax and (exporting() or key.size(2) > 1 + min(self.window.left, self.window.right))
        y = band_attention(
            query,
            turned(key, rotary),
            value,
            window=self.window,
            global_mask=global_tokens,
            key_padding_mask=padding_mask,
            score_terms=score_terms,
            dropout_p=dropout_p,
            scale=self.scale,
            backend=self.backend or self._fastest(query, key, dropout_p, self.window, score_terms=score_terms),
            return_lse=has_pools,
        )
        if has_pools:
            near, lse = y
            pools = self._pools(key, global_tokens, padding_mask, score_terms, rotary)
            pooled_values, _ = self._pool_projected(value, self.pooled_v_pool_weight, padding_mask)
            how: dict[str, Any] = {"dropout_p": dropout_p, "backend": self.backend}
            far, far_lse = band_attention(query, value=pooled_values, return_lse=True, **pools, **how)
            y = torch.lerp(near, far, self._share_of_pools(lse, far_lse, global_tokens).to(near.dtype))
        elif self.one_softmax and self.pooled_k_pool_weight is not None and torch.is_grad_enabled():
            unused = self.pooled_k_pool_weight[0, 0] + self.pooled_v_pool_weight[0, 0]
            y = y + 0 * unused  # a gradient of zeros, for which several GPUs wait
        if self.global_q_proj is not None and global_tokens is not None and global_tokens.num_slots:
            y = self._attend_globally(x, y, global_tokens, padding_mask, dropout_p, rotary)
        return y

    def check_score_terms(self, score_terms: tuple[ScoreTerm, ...]) -> None:
        """Raise ``ValueError`` for score terms with separate global projections."""
        if score_terms and self.global_q_proj is not None:
            raise ValueError(
                "score_terms and separate_global_projections do not go together: a global token's own row would be "
                "without the terms; leave one of the two out"
            )
        for term in score_terms if self.one_softmax else ():
            if not isinstance(term, RelativePositionBias):
                raise ValueError(
                    f"score_terms and pool_merge 'softmax': a {type(term).__name__} has no scores for pools; leave one "
                    "of the two out, or merge by 'sum'"
                )

    def _pools(
        self,
        key: Tensor,
        tokens: GlobalTokens | None,
        padding_mask: Tensor | None,
        score_terms: tuple[ScoreTerm, ...],
        rotary: Rotary | None,
    ) -> dict[str, Any]:
        """The operator's arguments for the pools that stand beside the tokens in one softmax, but for their values."""
        unseen = UnseenTokens.of(
            self.window, self.pooling, padding_mask, tokens, (key.size(0), key.size(2)), key.device
        )
        pooled_keys, _ = self._pool_projected(key, self.pooled_k_pool_weight, padding_mask)
        return {
            "key": turned(pooled_keys, rotary, key.size(2)),
            "window": self.pooled_window,
            "pooling": self.pooling,
            "key_padding_mask": unseen.empty,
            "score_terms": (
                unseen,
                *(cast(RelativePositionBias, term).of_pools(self.pooling.kernel_size) for term in score_terms),
            ),
            "scale": self.scale,
        }

    @staticmethod
    def _share_of_pools(near: Tensor, far: Tensor, tokens: GlobalTokens | None) -> Tensor:
        """(B, H, T, 1) the pools' part of one softmax, from the logarithms (B, H, T) of both denominators."""
        if tokens is not None:
            far = far.masked_fill(tokens.mask[:, None], -torch.inf)  # global tokens see all tokens themselves
        # e^far / (e^near + e^far); NaN where a query sees nothing at all, and both outputs are zero
        share = (far - near).masked_fill((far == -torch.inf) & (near == -torch.inf), 0.0).sigmoid()
        return share.unsqueeze(-1)

    @staticmethod
    def _fastest(
        query: Tensor,
        key: Tensor,
        dropout_p: float,
        window: Window,
        pooling: Pooling | None = None,
        score_terms: tuple[ScoreTerm, ...] = (),
    ) -> str | None:
        """PyTorch's own backend on a CPU where every query sees every key, and it can run; None leaves the choice."""
        if exporting() or score_terms or dropout_p or query.device.type != "cpu" or window.dilation != 1:
            return None
        queries, keys = (0, query.size(2) - 1), (0, key.size(2) - 1)
        return "sdpa" if band_of(window, pooling).covers(queries, keys) else None

    def _pooled_projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The modules that give Q̃, K̃ and Ṽ."""
        if self.pooled_q_proj is None:
            return self.q_proj, self.k_proj, self.v_proj
        return self.pooled_q_proj, self.pooled_k_proj, self.pooled_v_proj

    def _attend_to_pooled(
        self,
        source: Tensor | tuple[Tensor, Tensor],
        query: Tensor,
        padding_mask: Tensor | None,
        dropout_p: float,
        rotary: Rotary | None,
    ) -> Tensor:
        """Level two's Z (eq. 5–8), (B, H, T, D), from its queries and K̃ and Ṽ, or the input of their projections."""
        weights = self.pooled_k_pool_weight, self.pooled_v_pool_weight
        if isinstance(source, tuple):
            pools = [self._pool_projected(x, weight, padding_mask) for x, weight in zip(source, weights, strict=True)]
        else:
            pairs = zip(self._pooled_projections()[1:], weights, strict=True)
            pools = [self._pool(source, *pair, padding_mask) for pair in pairs]
        (pooled_keys, pooled_padding), (pooled_values, _) = pools
        fastest = self._fastest(query, pooled_keys, dropout_p, self.pooled_window, self.pooling)
        return band_attention(
            query,
            turned(pooled_keys, rotary, query.size(2)),
            pooled_values,
            window=self.pooled_window,
            pooling=self.pooling,
            key_padding_mask=pooled_padding,
            dropout_p=dropout_p,
            backend=self.backend or fastest,
        )

    def _pool_projected(
        self, x: Tensor, weight: Tensor | None, padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Pooled keys or values (B, H, P, D) of keys or values (B, H, T, D), and which are padding (B, P)."""
        return pool_keys(x, self.pooling, kind=self.pool_type, padding_mask=padding_mask, weight=weight)

    def _pool(
        self, x: Tensor, projection: nn.Module, weight: Tensor | None, padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same of ``x``, from which keys or values are projected.

        A sum with weights that add up to 1 and serve all channels changes places with a linear projection, so that only
        the P pooled vectors are projected: pool(xW + b) = pool(x)W + b. W_p then reads the vectors before they are
        projected, through the product of both matrices: W_p(Wx + b) = (W_p W)x + W_p b.
        """
        if self.pool_type == "max" or self.ldconv_heads > 1 or not is_plain_linear(projection):
            return self._pool_projected(self._split(projection(x)), weight, padding_mask)
        arguments: dict[str, Any] = {"kind": self.pool_type, "padding_mask": padding_mask}
        if weight is not None:
            bias = None if projection.bias is None else weight @ projection.bias
            arguments |= {"weight": weight @ projection.weight, "bias": bias}
        one_head = x.unsqueeze(1) if self.batch_first else x.permute(1, 0, 2).unsqueeze(1)
        pooled, pooled_padding = pool_keys(one_head, self.pooling, **arguments)
        pooled = pooled.squeeze(1) if self.batch_first else pooled.squeeze(1).transpose(0, 1)
        return self._split(projection(pooled)), pooled_padding

    def _attend_globally(
        self,
        x: Tensor,
        y: Tensor,
        tokens: GlobalTokens,
        padding_mask: Tensor | None,
        dropout_p: float,
        rotary: Rotary | None,
    ) -> Tensor:
        """Y, with the global tokens' rows attending to the whole sequence through their own projections."""
        attended = band_attention(
            self._global_query(x, tokens, rotary),
            turned(self._split(self.global_k_proj(x)), rotary),
            self._split(self.global_v_proj(x)),
            window=Window.unlimited(),
            key_padding_mask=padding_mask,
            dropout_p=dropout_p,
            scale=self.scale,
            backend=self.backend,
        )
        return tokens.replaced(y, attended)

    def _global_query(self, x: Tensor, tokens: GlobalTokens, rotary: Rotary | None) -> Tensor:
        """(B, H, G, D) the global tokens' own queries, of the separate projections."""
        query = self._split(self.global_q_proj(self._merge(tokens.gather(self._split(x)))))
        return query if rotary is None else turned(query, rotary.of_global(tokens))

    def _split(self, x: Tensor) -> Tensor:
        """To (B, H, T, D), a view."""
        x = x.unflatten(-1, (self.num_heads, -1))
        return x.transpose(1, 2) if self.batch_first else x.permute(1, 2, 0, 3)

    def _merge(self, x: Tensor) -> Tensor:
        """From (B, H, T, D) back to the layout of the input."""
        return (x.transpose(1, 2) if self.batch_first else x.permute(2, 0, 1, 3)).flatten(2)

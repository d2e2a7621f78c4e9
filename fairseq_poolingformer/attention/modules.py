"""Poolingformer's two-level self-attention as a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting

from fairseq_poolingformer.attention.backends import sdpa
from fairseq_poolingformer.attention.call import Call, ScoreTerm
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.joined import pool_both, pool_projected_both, projected
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.one_softmax import by_one_kernel, of_both, share_of_pools
from fairseq_poolingformer.attention.patterns import Pooling, Window
from fairseq_poolingformer.attention.plain_linear import is_plain_linear
from fairseq_poolingformer.attention.pooling import pool, pool_masks
from fairseq_poolingformer.attention.probabilities import LevelWeights, band_weights
from fairseq_poolingformer.attention.rotary import Rotary, turned
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.choices import POOL_MERGES, POOL_TYPES


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
            of level one's own keys and values, without other projections. Each pool is weighted by its number of real
            tokens that level one does not show the query; where a pool's tokens are equal, the result is that of full
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
        masks: Masks | None = None,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
        score_terms: tuple[ScoreTerm, ...] = (),
        rotary: Rotary | None = None,
    ) -> Tensor:
        """Attend within the sequence.

        Args:
            x: (B, T, C), or (T, B, C) without ``batch_first``.
            masks: the :class:`Masks` of the batch, which all layers share, in place of the next two.
            global_mask: (B, T) bool, True at global tokens, or the :class:`GlobalTokens` of such a mask.
            key_padding_mask: (B, T) bool, True at padding.
            score_terms: terms that are added to level one's scores.
            rotary: positions by which queries and keys are turned, pooled keys by those of their pools.

        Returns:
            The shape of ``x``.

        Raises:
            ValueError: score terms with separate global projections, which have none of their own, or with one softmax
                others than :class:`RelativePositionBias`; or ``masks`` beside a plain mask.
        """
        masks = Masks.of(masks, global_mask, key_padding_mask)
        attend = partial(self._operator, dropout_p=self.dropout_p)

        def both(query: Tensor, tokens: dict[str, Any], pools: Callable[[], dict[str, Any]]) -> Tensor:
            out = by_one_kernel(query, tokens, pools, self.dropout_p, self.backend)
            return of_both(attend, query, tokens, pools) if out is None else out

        y = self._attended(x, masks, score_terms, rotary, attend, both)
        return self.out_proj(self._merge(y))  # T 2.15: W_o(Y + Z)

    def weights(
        self,
        x: Tensor,
        *,
        masks: Masks | None = None,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
        score_terms: tuple[ScoreTerm, ...] = (),
        rotary: Rotary | None = None,
    ) -> LevelWeights:
        """The attention weights of both levels in banded form, without dropout; arguments as :meth:`forward`'s.

        ``level_two`` is None where the layer has one level, and in one softmax where the window shows every token.
        """
        masks, calls = Masks.of(masks, global_mask, key_padding_mask), {}

        def recorded(level: str, query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Any:
            result = self._operator(level, query, key, value, dropout_p=0.0, **arguments)
            return_lse = arguments.pop("return_lse", False)
            if level == "one":  # whose global tokens' rows are from_global's, whoever computes them
                arguments["masks"] = masks
            calls[level] = band_weights(query, key, **arguments), result[1] if return_lse else None
            return result

        self._attended(x, masks, score_terms, rotary, recorded, partial(of_both, recorded))
        (one, lse), (two, pools_lse) = calls["one"], calls.get("two", (None, None))
        if pools_lse is not None:  # both calls are parts of one softmax
            share = share_of_pools(lse, pools_lse, masks)
            one = one._replace(band=one.band * (1 - share), to_global=one.to_global * (1 - share))
            two = two._replace(band=two.band * share)
        if "global" in calls:
            unused = masks.global_keys.unused[:, None, :, None]
            one = one._replace(from_global=calls["global"][0].band.masked_fill(unused, 0.0))
        return LevelWeights(one, two)

    @property
    def dropout_p(self) -> float:
        """The probability of dropping an attention weight now."""
        return self.dropout if self.training or self.retain_dropout else 0.0

    def _attended(
        self,
        x: Tensor,
        masks: Masks,
        score_terms: tuple[ScoreTerm, ...],
        rotary: Rotary | None,
        attend: Callable[..., Any],
        both: Callable[..., Tensor],
    ) -> Tensor:
        """Y + Z, (B, H, T, D): the layer's attention calls in their order, each run by ``attend``.

        ``attend(level, query, key, value, **arguments)`` has the arguments of :func:`band_attention`; ``level`` is
        "one", "global" or "two". ``both`` runs the calls of one softmax, as :func:`of_both`.
        """
        self.check_score_terms(score_terms)
        # eq. 1: Q, K, V; Longformer §3.1: global tokens have projections of their own
        separate = self.global_q_proj is not None and masks.global_keys is not None
        more = [self.global_k_proj, self.global_v_proj] if separate else []
        projections = projected(x, [self.q_proj, self.k_proj, self.v_proj], more)
        query, key, value, *of_globals = map(self._split, projections)
        query = turned(query, rotary)
        # a window that shows every token leaves no token to the pools
        has_pools = self.one_softmax and (is_exporting() or key.size(2) > 1 + min(self.window.left, self.window.right))

        # eq. 13 (eq. 4 without global tokens): Y, from the window and the global tokens
        of_level_one = masks.without_global_queries if separate else masks
        level_one: dict[str, Any] = {"key": turned(key, rotary), "value": value, "masks": of_level_one}
        level_one |= {"window": self.window, "score_terms": score_terms, "scale": self.scale}
        if not has_pools:
            y = attend("one", query, **level_one)
        else:  # one softmax over the tokens and the pools
            y = both(query, level_one, partial(self._unseen_pools, key, value, masks, score_terms, rotary))
        if self.one_softmax and not has_pools and self.pooled_k_pool_weight is not None and torch.is_grad_enabled():
            unused = self.pooled_k_pool_weight[0, 0] + self.pooled_v_pool_weight[0, 0]
            y = y + 0 * unused  # a gradient of zeros, for which several GPUs wait

        # the rows of global tokens, which attend to all tokens
        if separate:
            y = self._with_global_rows(x, y, of_globals, masks, rotary, attend)

        if self.pooling is None or self.one_softmax:
            return y

        # eq. 5: Q̃, K̃, Ṽ of Y, or with Mix of X; eq. 6–7, 9–11: K̃ and Ṽ pooled
        place, pools = (self.pooling, key.size(2), key.device), self._pools(masks)
        if self.mix and self.pooled_q_proj is None:  # both levels have the same queries, keys and values
            pooled_keys, pooled_values = pool_both(key, value, *pools)
        else:
            source = x if self.mix else self._merge(y)
            q_proj, *kv_proj = self._pooled_projections()
            query = turned(self._split(q_proj(source)), rotary)
            joined = None
            if self.ldconv_heads == 1:
                joined = pool_projected_both(self._one_head(source), kv_proj, self.num_heads, *pools)
            pairs = zip(kv_proj, pools[-1], strict=True)
            pooled_keys, pooled_values = joined or (self._pool_projected(source, *pair, masks) for pair in pairs)

        # eq. 8: Z, from the pools within w2
        geometry = {"window": self.pooled_window, "pooling": self.pooling, "masks": masks.derived(pool_masks, *place)}
        return y + attend("two", query, turned(pooled_keys, rotary, key.size(2)), pooled_values, **geometry)

    def _with_global_rows(
        self,
        x: Tensor,
        y: Tensor,
        key_and_value: list[Tensor],
        masks: Masks,
        rotary: Rotary | None,
        attend: Callable[..., Any],
    ) -> Tensor:
        """``y`` with the rows of the global tokens, from their own projections of ``x``."""
        tokens, of_globals = cast(GlobalTokens, masks.global_keys), x
        # where nobody may look, all tokens are queries, of which those that are not global go unused
        geometry: dict[str, Any] = {"window": Window(0), "masks": masks, "scale": self.scale}
        if tokens.known:
            of_globals = self._merge(tokens.gather(self._split(x))).contiguous()
            geometry |= {"window": Window.unlimited(), "masks": masks.without_globals}
        query = self._split(cast(nn.Module, self.global_q_proj)(of_globals))
        if rotary is not None:
            query = turned(query, rotary.of_global(tokens) if tokens.known else rotary)
        kv_proj = cast(Sequence[nn.Module], (self.global_k_proj, self.global_v_proj))
        key, value = key_and_value or (self._split(p(x)) for p in kv_proj)
        rows = attend("global", query, turned(key, rotary), value, **geometry)
        return tokens.replaced(y, rows) if tokens.known else torch.where(tokens.mask[:, None, :, None], rows, y)

    def _operator(self, level: str, query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Any:
        """:func:`band_attention` by the layer's backend."""
        backend = self.backend
        if backend is None and level != "global" and query.device.type == "cpu" and not is_exporting():
            call = Call(query, key, value, **{"scale": None, **arguments})
            backend = None if sdpa.why_not(call) else "sdpa"  # the fastest on a CPU
        return band_attention(query, key, value, backend=backend, **arguments)

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

    def _unseen_pools(
        self, key: Tensor, value: Tensor, masks: Masks, score_terms: tuple[ScoreTerm, ...], rotary: Rotary | None
    ) -> dict[str, Any]:
        """The operator's arguments for the pools beside the tokens in one softmax, from level one's keys and values."""
        shape = key.size(0), key.size(2)
        unseen = masks.derived(UnseenTokens.of, self.window, self.pooling, shape, key.device)
        of_pools = (cast(RelativePositionBias, term).of_pools(self.pooling.kernel_size) for term in score_terms)
        pooled_keys, pooled_values = pool_both(key, value, *self._pools(masks))
        return {
            "key": turned(pooled_keys, rotary, key.size(2)),
            "value": pooled_values,
            "window": self.pooled_window,
            "pooling": self.pooling,
            "masks": unseen.masks,
            "score_terms": (unseen, *of_pools),
            "scale": self.scale,
        }

    def _pooled_projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The modules that give Q̃, K̃ and Ṽ."""
        if self.pooled_q_proj is None:
            return self.q_proj, self.k_proj, self.v_proj
        return self.pooled_q_proj, self.pooled_k_proj, self.pooled_v_proj

    def _pools(self, masks: Masks) -> tuple[Any, ...]:
        """pooling … weights of :func:`pool_both`."""
        return self.pooling, self.pool_type, masks, (self.pooled_k_pool_weight, self.pooled_v_pool_weight)

    def _pool_projected(self, x: Tensor, projection: nn.Module, weight: Tensor | None, masks: Masks) -> Tensor:
        """Pooled keys or values (B, H, P, D) of ``x``, from which ``projection`` makes keys or values.

        A sum with weights that add up to 1 and serve all channels changes places with a linear projection, so that only
        the P pooled vectors are projected: pool(xW + b) = pool(x)W + b. W_p then reads the vectors before they are
        projected, through the product of both matrices: W_p(Wx + b) = (W_p W)x + W_p b.
        """
        if self.pool_type == "max" or self.ldconv_heads > 1 or not is_plain_linear(projection):
            return pool(self._split(projection(x)), self.pooling, self.pool_type, masks, weight)
        bias = None if weight is None or projection.bias is None else weight @ projection.bias
        weight = None if weight is None else weight @ projection.weight
        pooled = pool(self._one_head(x), self.pooling, self.pool_type, masks, weight, bias)
        pooled = pooled.squeeze(1) if self.batch_first else pooled.squeeze(1).transpose(0, 1)
        return self._split(projection(pooled))

    def _one_head(self, x: Tensor) -> Tensor:
        """To (B, 1, T, C), a view."""
        return x.unsqueeze(1) if self.batch_first else x.permute(1, 0, 2).unsqueeze(1)

    def _split(self, x: Tensor) -> Tensor:
        """To (B, H, T, D), a view."""
        x = x.view(*x.shape[:-1], self.num_heads, -1)  # at a third of unflatten()'s host time
        return x.transpose(1, 2) if self.batch_first else x.permute(1, 2, 0, 3)

    def _merge(self, x: Tensor) -> Tensor:
        """From (B, H, T, D) back to the layout of the input."""
        return (x.transpose(1, 2) if self.batch_first else x.permute(2, 0, 1, 3)).flatten(2)

"""BART's decoder with the same attention operator: it never stores a target × source matrix."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from fairseq_poolingformer.attention import Masks, Window, band_attention
from fairseq_poolingformer.attention.backends import sdpa
from fairseq_poolingformer.models.encoder import rows_of, wrapped
from fairseq_poolingformer.settings import TwoLevelFlags
from fairseq_poolingformer.training.nonfinite import require_finite_output


def _split(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, C) to (B, H, T, D), a view."""
    return x.view(*x.shape[:-1], num_heads, -1).permute(1, 2, 0, 3)


def right_padded(masks: Masks) -> bool:
    """Whether padding follows the real tokens of every row, where causal windows show it to none of them."""
    return masks.padding is None or not (masks.padding[:, :-1] & ~masks.padding[:, 1:]).any()


class _Attention(MultiheadAttention):
    """fairseq's attention and its parameters, by PyTorch's kernels on a GPU, elsewhere by the operator."""

    backend: str | None = None  # of the operator, which then runs on a GPU, too

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, is_causal: bool) -> Tensor:
        dropout = self.dropout_module
        dropout_p = dropout.p if dropout.training or dropout.apply_during_inference else 0.0  # --retain-dropout
        is_fastest = self.backend is None and sdpa.takes(query)
        if is_fastest and (not self.self_attention or (is_causal and masks.derived(right_padded))):
            return sdpa.attend(query, key, value, masks, is_causal, dropout_p=dropout_p)
        named = {"masks": masks, "dropout_p": dropout_p, "backend": self.backend}
        return band_attention(query, key, value, window=Window.unlimited(causal=is_causal), **named)


class CausalSelfAttention(_Attention):
    """fairseq's decoder self-attention, with one call where whole targets are scored."""

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, Any] | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """See fairseq's; ``attn_mask`` are the :class:`Masks` of targets, None where they see what follows them."""
        if incremental_state is not None:
            return super().forward(query, key, value, key_padding_mask, incremental_state, **others)
        targets = others.get("attn_mask")
        masks = targets if targets and key_padding_mask is not None else Masks(None, key_padding_mask)
        heads = (_split(project(query), self.num_heads) for project in (self.q_proj, self.k_proj, self.v_proj))
        attended = self._attend(*heads, masks, is_causal=targets is not None)
        return self.out_proj(attended.permute(2, 0, 1, 3).flatten(2)), None


class CrossAttention(_Attention):
    """fairseq's encoder-decoder attention without stored weights, and with one copy of the source for all beams.

    The beams of a sentence are more queries to the same keys, so that ``--beam 5`` projects and keeps the keys and
    values of a long source once, not five times. Attention weights are not returned, and ``--print-alignment`` and
    ``--replace-unk`` do not work; :meth:`weights` computes them for people who want to look at them.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Masks | None = None,
        incremental_state: dict[str, Any] | None = None,
        **unused: Any,
    ) -> tuple[Tensor, None]:
        """Attend from (T, B·beams, C) to the encoder's output (S, B, C), projected once into ``incremental_state``."""
        length, rows, channels = query.shape
        source = self._source(key, incremental_state)
        keys, values = (_split(source[name], self.num_heads) for name in ("keys", "values"))
        batch = keys.size(0)
        source["beams"] = beams = rows // batch
        q = self.q_proj(query).view(length, batch, beams, self.num_heads, self.head_dim)
        q = q.permute(1, 3, 2, 0, 4).flatten(2, 3)
        attended = self._attend(q, keys, values, key_padding_mask or Masks(), is_causal=False)
        attended = attended.view(*attended.shape[:2], beams, length, -1).permute(3, 0, 2, 1, 4)
        return self.out_proj(attended.reshape(length, rows, channels)), None

    def weights(self, query: Tensor, key: Tensor, key_padding_mask: Masks | None = None) -> Tensor:
        """(B, H, T, S) the weights of the queries, one row for each source, without dropout; as :meth:`forward`."""
        q, k = _split(self.q_proj(query), self.num_heads), _split(self.k_proj(key), self.num_heads)
        scores = (q * self.scaling @ k.transpose(-1, -2)).float()
        if key_padding_mask is not None and key_padding_mask.padding is not None:
            scores = scores.masked_fill(key_padding_mask.padding[:, None, None], -torch.inf)
        return scores.softmax(-1)

    def _source(self, key: Tensor | None, incremental_state: dict[str, Any] | None) -> dict[str, Any]:
        """Projected ``keys`` and ``values`` (S, B, C), from the state where it has them."""
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if "keys" not in saved:
            saved = {"keys": self.k_proj(key), "values": self.v_proj(key)}
            if incremental_state is not None:
                self._set_input_buffer(incremental_state, saved)
        return saved

    @torch.jit.unused
    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> dict[str, Any] | None:
        """Keep the sources of the sentences that are not finished; the beams of a sentence share one."""
        saved = self._get_input_buffer(incremental_state)
        if "keys" not in saved or saved["keys"].size(1) * saved["beams"] == new_order.numel():
            return incremental_state  # beams only change places within their sentence
        rows = rows_of(new_order, saved["beams"])
        saved = {name: saved[name].index_select(1, rows) for name in ("keys", "values")} | {"beams": saved["beams"]}
        return self._set_input_buffer(incremental_state, saved)


class PoolingformerDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer over :class:`CausalSelfAttention` and :class:`CrossAttention`."""

    def build_self_attention(self, embed_dim: int, cfg, add_bias_kv: bool = False, add_zero_attn: bool = False):
        if cfg.cross_self_attention:
            raise ValueError("--cross-self-attention is not supported in this decoder; leave it out")
        return self._built(CausalSelfAttention, embed_dim, cfg, self_attention=True)

    def build_encoder_attention(self, embed_dim: int, cfg):
        width = cfg.encoder.embed_dim
        return self._built(CrossAttention, embed_dim, cfg, kdim=width, vdim=width, encoder_decoder_attention=True)

    def _built(self, kind: type[_Attention], embed_dim: int, cfg, **kinds: Any) -> _Attention:
        attention = kind(embed_dim, cfg.decoder.attention_heads, dropout=cfg.attention_dropout, **kinds)
        backend = TwoLevelFlags.of(cfg).attention_backend
        attention.backend = None if backend == "sdpa" else backend
        return attention


class PoolingformerDecoder(TransformerDecoderBase):
    """fairseq's transformer decoder with :class:`PoolingformerDecoderLayer`."""

    def build_decoder_layer(self, cfg, no_encoder_attn: bool = False) -> nn.Module:
        return wrapped(PoolingformerDecoderLayer(cfg, no_encoder_attn), cfg)

    def extract_features(
        self, prev_output_tokens: Tensor, encoder_out: Any = None, incremental_state: Any = None, **named: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """See :class:`fairseq.models.transformer.TransformerDecoderBase`."""
        if incremental_state is None:
            self._target_masks = Masks(None, prev_output_tokens.eq(self.padding_idx))
        if encoder_out is not None:
            encoder_out = encoder_out | {"encoder_padding_mask": encoder_out["masks"]}
        x, extra = super().extract_features(prev_output_tokens, encoder_out, incremental_state, **named)
        if not self.training and not x.isfinite().all():
            for index, state in enumerate(extra["inner_states"][1:]):  # the first are the embeddings
                require_finite_output(state, f"decoder layer {index}")
            require_finite_output(x, "the decoder's last norm")
        return x, extra

    def buffered_future_mask(self, tensor: Tensor) -> Masks:
        """The ``attn_mask`` of :class:`CausalSelfAttention`."""
        return self._target_masks

    def output_layer(self, features: Tensor) -> Tensor:
        """(…, V) logits of (…, C) features."""
        logits = super().output_layer(features)
        if not self.training:
            require_finite_output(logits, "the decoder's output projection")
        return logits

"""BART's decoder with the same attention operator: it never stores a target × source matrix."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.models.encoder import wrapped
from fairseq_poolingformer.training.nonfinite import require_finite_output


def _split(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, C) to (B, H, T, D), a view."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def _dropout_p(dropout: FairseqDropout) -> float:
    """The probability of dropping a weight now: in training, and with ``--retain-dropout``."""
    return dropout.p if dropout.training or dropout.apply_during_inference else 0.0


class CausalSelfAttention(MultiheadAttention):
    """fairseq's decoder self-attention and its parameters, with the operator where whole targets are scored."""

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, Any] | None = None,
        attn_mask: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """See :class:`fairseq.modules.MultiheadAttention`; ``attn_mask`` says only whether attention is causal."""
        if incremental_state is not None:
            return super().forward(
                query, key, value, key_padding_mask, incremental_state, attn_mask=attn_mask, **others
            )
        attended = band_attention(
            *(_split(project(query), self.num_heads) for project in (self.q_proj, self.k_proj, self.v_proj)),
            window=Window.unlimited(causal=attn_mask is not None),
            key_padding_mask=key_padding_mask,
            dropout_p=_dropout_p(self.dropout_module),
        )
        return self.out_proj(attended.permute(2, 0, 1, 3).flatten(2)), None


class CrossAttention(MultiheadAttention):
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
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, Any] | None = None,
        **unused: Any,
    ) -> tuple[Tensor, None]:
        """Attend from (T, B·beams, C) to the encoder's output (S, B, C), projected once into ``incremental_state``."""
        length, rows, channels = query.shape
        source = self._source(key, key_padding_mask, incremental_state)
        keys, values, padding = source["keys"], source["values"], source["padding"]
        batch = keys.size(1)
        source["beams"] = beams = rows // batch
        q = self.q_proj(query).view(length, batch, beams, self.num_heads, self.head_dim)
        q = q.permute(1, 3, 2, 0, 4).flatten(2, 3)
        attended = band_attention(
            q,
            _split(keys, self.num_heads),
            _split(values, self.num_heads),
            window=Window.unlimited(),
            key_padding_mask=padding,
            dropout_p=_dropout_p(self.dropout_module),
        )
        attended = attended.unflatten(2, (beams, length)).permute(3, 0, 2, 1, 4)
        return self.out_proj(attended.reshape(length, rows, channels)), None

    def weights(self, query: Tensor, key: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """(B, H, T, S) the weights of the queries, one row for each source, without dropout; as :meth:`forward`."""
        q, k = _split(self.q_proj(query), self.num_heads), _split(self.k_proj(key), self.num_heads)
        scores = (q * self.scaling @ k.transpose(-1, -2)).float()
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        return scores.softmax(-1)

    def _source(
        self, key: Tensor | None, padding: Tensor | None, incremental_state: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Projected ``keys`` and ``values`` (S, B, C) and ``padding`` (B, S), from the state where it has them."""
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if "keys" not in saved:
            saved = {"keys": self.k_proj(key), "values": self.v_proj(key), "padding": padding}
            if incremental_state is not None:
                self._set_input_buffer(incremental_state, saved)
        return saved

    @torch.jit.unused
    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> dict[str, Any] | None:
        """Keep the sources of the sentences that are not finished; the beams of a sentence share one."""
        saved = self._get_input_buffer(incremental_state)
        if "keys" not in saved or saved["keys"].size(1) * saved["beams"] == new_order.numel():
            return incremental_state  # beams only change places within their sentence
        rows = new_order.view(-1, saved["beams"])[:, 0] // saved["beams"]
        padding = saved["padding"]
        kept = {
            "keys": saved["keys"].index_select(1, rows),
            "values": saved["values"].index_select(1, rows),
            "padding": None if padding is None else padding.index_select(0, rows),
            "beams": saved["beams"],
        }
        return self._set_input_buffer(incremental_state, kept)


class PoolingformerDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer over :class:`CausalSelfAttention` and :class:`CrossAttention`."""

    def build_self_attention(self, embed_dim: int, cfg, add_bias_kv: bool = False, add_zero_attn: bool = False):
        if cfg.cross_self_attention:
            raise ValueError("--cross-self-attention is not supported in this decoder; leave it out")
        return CausalSelfAttention(
            embed_dim, cfg.decoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True
        )

    def build_encoder_attention(self, embed_dim: int, cfg):
        return CrossAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
        )


class PoolingformerDecoder(TransformerDecoderBase):
    """fairseq's transformer decoder with :class:`PoolingformerDecoderLayer`."""

    def build_decoder_layer(self, cfg, no_encoder_attn: bool = False) -> nn.Module:
        return wrapped(PoolingformerDecoderLayer(cfg, no_encoder_attn), cfg)

    def extract_features(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, list[Any]] | None = None, *others: Any, **named: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """See :class:`fairseq.models.transformer.TransformerDecoderBase`."""
        x, extra = super().extract_features(prev_output_tokens, encoder_out, *others, **named)
        if not self.training and not x.isfinite().all():
            for index, state in enumerate(extra["inner_states"][1:]):  # the first are the embeddings
                require_finite_output(state, f"decoder layer {index}")
            require_finite_output(x, "the decoder's last norm")
        return x, extra

    def output_layer(self, features: Tensor) -> Tensor:
        """(…, V) logits of (…, C) features."""
        logits = super().output_layer(features)
        if not self.training:
            require_finite_output(logits, "the decoder's output projection")
        return logits

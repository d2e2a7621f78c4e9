"""Poolingformer-MPNet for transformers, whose scores by distance are those of the first level."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from fairseq_poolingformer.attention import LevelWeights
from fairseq_poolingformer.attention.compiler import exporting
from fairseq_poolingformer.huggingface.encoders import TextEncoder
from fairseq_poolingformer.huggingface.position_bias import BiasedSelfAttention, bias_table

MAX_DISTANCE = 128  # tokens: transformers' constant


class MPNetAttention(BiasedSelfAttention):
    """In place of ``MPNetSelfAttention``, whose third argument is the scores."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, position_bias: Tensor, output_attentions: bool = False
    ) -> tuple[Tensor, LevelWeights | None]:
        """Attend, as :meth:`EncoderSelfAttention.forward` does."""
        return super().forward(hidden_states, attention_mask, output_attentions, position_bias=position_bias)

    def weights(
        self, hidden_states: Tensor, attention_mask: Tensor, position_bias: Tensor, **unused: Any
    ) -> LevelWeights:
        """Return both levels' weights in banded form; arguments as :meth:`forward`'s."""
        return super().weights(hidden_states, attention_mask, position_bias=position_bias)


class TwoLevelMPNetEncoder(MPNetEncoder):
    """MPNet's layers."""

    def compute_position_bias(self, x: Tensor, position_ids: Tensor | None = None, num_buckets: int = 32) -> Tensor:
        """Return the table of :func:`bias_table`."""
        return bias_table(
            self.relative_attention_bias,
            lambda relative: self.relative_position_bucket(relative, num_buckets, MAX_DISTANCE),
            MAX_DISTANCE,
        )


class TwoLevelMPNet(TextEncoder):
    """MPNet's encoder with two-level attention."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *args: Any,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Compute MPNet's forward pass; a 2 in ``attention_mask`` is a global token, too."""
        if global_attention_mask is None and attention_mask is not None and not exporting():
            marked = attention_mask > 1
            global_attention_mask = marked if marked.any() else None
        return super().forward(input_ids, attention_mask, *args, global_attention_mask=global_attention_mask, **kwargs)


class MPNetHead:
    """Comes before the classes with a head."""

    def _prepared(self, *inputs: Tensor | None) -> dict[str, Tensor | None]:
        """Return the inputs with the global tokens in ``attention_mask``: transformers' heads hand on no other mask."""
        found = super()._prepared(*inputs)
        if (chosen := found.pop("global_attention_mask")) is not None:
            real = found["attention_mask"]
            if real is not None and real.shape != chosen.shape:
                raise ValueError(f"global_attention_mask is {tuple(chosen.shape)}, attention_mask {tuple(real.shape)}")
            found["attention_mask"] = (torch.ones_like(chosen) if real is None else real.long()) * (1 + chosen.bool())
        return found

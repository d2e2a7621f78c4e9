"""Poolingformer-T5 for transformers: no positions but scores by distance, which the first layer gives to all others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.utils import can_return_tuple

from fairseq_poolingformer.attention import LevelWeights, RelativePositionBias
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention, Layout
from fairseq_poolingformer.huggingface.encoders import TwoLevelModel
from fairseq_poolingformer.huggingface.padding import encode
from fairseq_poolingformer.levels import check_positions
from fairseq_poolingformer.settings import TwoLevels


class T5SelfAttention(EncoderSelfAttention):
    """In place of the encoder's ``T5Attention``: its projections have no biases, and level one's scores no scale."""

    def __init__(
        self, embed_dim: int, num_heads: int, *, config: PreTrainedConfig, has_scores: bool, **arguments: Any
    ) -> None:
        width = num_heads * config.d_kv
        if width != embed_dim and (config.pool_mix or config.pool_share_weights):
            raise ValueError(
                f"pool_mix and pool_share_weights need heads that are together as wide as the model, {embed_dim}, and "
                f"these are {width}: leave them out"
            )
        super().__init__(width, num_heads, scale=1.0, **arguments)
        for name in self.names[:3]:
            setattr(self, name, nn.Linear(embed_dim, width, bias=False))
        setattr(self, self.names[3], nn.Linear(width, embed_dim, bias=False))
        self.buckets = {"num_buckets": config.relative_attention_num_buckets}
        self.buckets["max_distance"] = config.relative_attention_max_distance
        self.relative_attention_bias = None
        if has_scores:
            self.relative_attention_bias = nn.Embedding(config.relative_attention_num_buckets, num_heads)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **unused: Any,
    ) -> tuple[Tensor, Tensor, LevelWeights | None]:
        """Attend; ``position_bias`` is the first layer's table, (H, 2·max_distance + 1), which all others share."""
        table = self._table(position_bias)
        attended, weights = super().forward(hidden_states, mask, output_attentions, position_bias=table)
        return attended, table, weights

    def weights(
        self, hidden_states: Tensor, mask: Tensor, position_bias: Tensor | None = None, **unused: Any
    ) -> LevelWeights:
        """Return both levels' weights in banded form; arguments as :meth:`forward`'s."""
        return super().weights(hidden_states, mask, position_bias=self._table(position_bias))

    def _table(self, position_bias: Tensor | None) -> Tensor:
        if position_bias is not None:
            return position_bias
        scores, farthest = self.relative_attention_bias, self.buckets["max_distance"]
        distances = torch.arange(-farthest, farthest + 1, device=scores.weight.device)
        return scores(T5Attention._relative_position_bucket(-distances, **self.buckets)).t()

    def _arguments(self, masks: Tensor, position_bias: Tensor, **kwargs: Any) -> dict[str, Any]:
        return {**super()._arguments(masks, **kwargs), "score_terms": (RelativePositionBias(position_bias),)}


class TwoLevelT5Stack(TwoLevelModel):
    """Comes before transformers' own stack: T5's encoder with two-level attention, or its decoder."""

    layout = Layout("block", "layer.0.SelfAttention", ("q", "k", "v", "o"), "dropout_rate", 0, T5SelfAttention)

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        if not config.is_decoder:
            check_positions(TwoLevels.of(config))
            self.layout.install(self, lambda layer: {"config": config, "has_scores": layer == 0})
            self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, T5SelfAttention):  # as T5Attention
            factor, width = self.config.initializer_factor, self.config.d_model
            init.normal_(module.q.weight, std=factor * (width * self.config.d_kv) ** -0.5)
            init.normal_(module.k.weight, std=factor * width**-0.5)
            init.normal_(module.v.weight, std=factor * width**-0.5)
            init.normal_(module.o.weight, std=factor * module.embed_dim**-0.5)
            if module.relative_attention_bias is not None:
                init.normal_(module.relative_attention_bias.weight, std=factor * width**-0.5)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput | BaseModelOutputWithPastAndCrossAttentions:
        """Compute T5's forward pass; ``global_attention_mask``, (B, T), is the encoder's."""
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
        if self.is_decoder:
            return super().forward(attention_mask=attention_mask, **inputs, **kwargs)
        output = encode(
            super().forward,
            inputs,
            attention_mask,
            global_attention_mask,
            longest=self.config.max_position_embeddings,
            global_tokens=self.config.global_tokens,
            **self.with_defaults(kwargs),
        )
        # as T5 takes it again
        return BaseModelOutput(output.last_hidden_state, output.hidden_states, output.attentions)

"""Poolingformer-BART for transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import BartForConditionalGeneration, BartModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models.bart.modeling_bart import BartEncoder, BartLearnedPositionalEmbedding
from transformers.utils import can_return_tuple

from fairseq_poolingformer.huggingface.attention import BartSelfAttention, initialize
from fairseq_poolingformer.huggingface.configuration import PoolingformerBartConfig
from fairseq_poolingformer.huggingface.padding import Rows
from fairseq_poolingformer.huggingface.short_models import FromShort


class _Initialized:
    """The configuration and initialization of every model in this module."""

    config_class = PoolingformerBartConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize(module)


class PoolingformerBartEncoder(_Initialized, BartEncoder):
    """BART's encoder with two-level attention."""

    def __init__(self, config: PoolingformerBartConfig) -> None:
        super().__init__(config)
        for number, layer in enumerate(self.layers):
            layer.self_attn = BartSelfAttention(config, number)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Compute BART's forward pass.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 at real tokens, padding on either side; None without padding.
            inputs_embeds: (B, T, C) in place of ``input_ids``.
            global_attention_mask: (B, T), 1 at global tokens; None for the first ``config.global_tokens`` ones.
            kwargs: as BART's.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds, exactly one of the two")
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given.size(1) > self.config.max_position_embeddings:
            raise ValueError(
                f"input of {given.size(1)} tokens, the model takes {self.config.max_position_embeddings} "
                "(max_position_embeddings): truncate it, or make a longer model with from_short"
            )
        rows = Rows.of(attention_mask)
        kwargs["return_dict"] = True
        encoded = super().forward(
            input_ids=rows.moved(input_ids),
            inputs_embeds=rows.moved(inputs_embeds),
            attention_mask=rows.masks(given, global_attention_mask, self.config.global_tokens),
            **kwargs,
        )
        encoded.last_hidden_state = rows.back(encoded.last_hidden_state)
        if encoded.hidden_states is not None:
            encoded.hidden_states = tuple(map(rows.back, encoded.hidden_states))
        return encoded


class PoolingformerBartModel(_Initialized, BartModel):
    """BART whose encoder has two-level attention, and whose encoder and decoder have their own numbers of positions."""

    def __init__(self, config: PoolingformerBartConfig) -> None:
        super().__init__(config)
        self.encoder = PoolingformerBartEncoder(config)
        positions = config.max_decoder_position_embeddings
        self.decoder.embed_positions = BartLearnedPositionalEmbedding(positions, config.d_model)
        self.decoder.max_target_positions = positions
        self.post_init()


class PoolingformerBartForConditionalGeneration(FromShort, _Initialized, BartForConditionalGeneration):
    """Poolingformer-BART that generates text, such as summaries."""

    short_class = BartForConditionalGeneration
    short_types = ("bart",)

    def __init__(self, config: PoolingformerBartConfig) -> None:
        super().__init__(config)
        self.model = PoolingformerBartModel(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Compute BART's forward pass; ``global_attention_mask`` as in :meth:`PoolingformerBartEncoder.forward`."""
        if encoder_outputs is None and (input_ids is not None or inputs_embeds is not None):
            wanted = {name: kwargs[name] for name in ("output_hidden_states",) if name in kwargs}
            encoder_outputs = self.model.encoder(
                input_ids, attention_mask, inputs_embeds, global_attention_mask, return_dict=True, **wanted
            )
        kwargs["return_dict"] = True
        return super().forward(input_ids, attention_mask=attention_mask, encoder_outputs=encoder_outputs, **kwargs)

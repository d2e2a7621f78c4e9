"""Poolingformer-BART and Poolingformer-mBART for transformers."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from transformers import (
    BartForConditionalGeneration,
    BartModel,
    LEDForConditionalGeneration,
    MBartForConditionalGeneration,
    MBartModel,
)
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models.bart.modeling_bart import BartEncoder, BartEncoderLayer
from transformers.models.mbart.modeling_mbart import MBartEncoder, MBartEncoderLayer
from transformers.utils import can_return_tuple

from fairseq_poolingformer.huggingface.attention import BartSelfAttention
from fairseq_poolingformer.huggingface.base import TwoLevelModel
from fairseq_poolingformer.huggingface.configuration import PoolingformerBartConfig, PoolingformerMBartConfig
from fairseq_poolingformer.huggingface.padding import encode
from fairseq_poolingformer.huggingface.short_models import FromShort


class _Encoder(TwoLevelModel):
    """An encoder of transformers' with two-level attention."""

    def __init__(self, config: PoolingformerBartConfig | PoolingformerMBartConfig) -> None:
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
        return encode(
            super().forward,
            {"input_ids": input_ids, "inputs_embeds": inputs_embeds},
            attention_mask,
            global_attention_mask,
            longest=self.config.max_position_embeddings,
            global_tokens=self.config.global_tokens,
            **kwargs,
        )


class PoolingformerBartEncoder(_Encoder, BartEncoder):
    """BART's encoder with two-level attention."""

    config_class = PoolingformerBartConfig
    _can_record_outputs: ClassVar = {"hidden_states": BartEncoderLayer, "attentions": BartSelfAttention}


class PoolingformerMBartEncoder(_Encoder, MBartEncoder):
    """mBART's encoder with two-level attention."""

    config_class = PoolingformerMBartConfig
    _can_record_outputs: ClassVar = {"hidden_states": MBartEncoderLayer, "attentions": BartSelfAttention}


class _Model(TwoLevelModel):
    """Encoder and decoder with their own numbers of positions."""

    encoder_class: type[_Encoder]

    def __init__(self, config: PoolingformerBartConfig | PoolingformerMBartConfig) -> None:
        super().__init__(config)
        self.encoder = self.encoder_class(config)
        positions = config.max_decoder_position_embeddings
        self.decoder.embed_positions = type(self.decoder.embed_positions)(positions, config.d_model)
        self.decoder.max_target_positions = positions
        self.post_init()


class PoolingformerBartModel(_Model, BartModel):
    """BART whose encoder has two-level attention, and whose encoder and decoder have their own numbers of positions."""

    config_class = PoolingformerBartConfig
    encoder_class = PoolingformerBartEncoder


class PoolingformerMBartModel(_Model, MBartModel):
    """mBART with two-level attention, changed as :class:`PoolingformerBartModel` is."""

    config_class = PoolingformerMBartConfig
    encoder_class = PoolingformerMBartEncoder


class _ForConditionalGeneration(FromShort, TwoLevelModel):
    """The language model around :class:`_Model`."""

    model_class: type[_Model]

    def __init__(self, config: PoolingformerBartConfig | PoolingformerMBartConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Compute BART's forward pass; ``global_attention_mask`` as the encoder's.

        Trainer passes on only the inputs that the signature names.

        Raises:
            ValueError: the decoder's input is too long.
        """
        if encoder_outputs is None and (input_ids is not None or inputs_embeds is not None):
            names = ("output_hidden_states", "output_attentions")
            wanted = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
            encoder_outputs = self.model.encoder(
                input_ids, attention_mask, inputs_embeds, global_attention_mask, return_dict=True, **wanted
            )
        written = [decoder_input_ids, kwargs.get("decoder_inputs_embeds"), labels, input_ids]
        tokens = next((x.size(1) for x in written if x is not None), 0)
        if tokens > (most := self.config.max_decoder_position_embeddings):
            raise ValueError(
                f"{tokens} tokens for the decoder, which takes {most} (max_decoder_position_embeddings): truncate the "
                "labels or decoder_input_ids, give one of them if neither was given, or make a longer model with "
                "from_short"
            )
        kwargs["return_dict"] = True
        return super().forward(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            labels=labels,
            **kwargs,
        )


class PoolingformerBartForConditionalGeneration(_ForConditionalGeneration, BartForConditionalGeneration):
    """Poolingformer-BART that generates text, such as summaries."""

    config_class = PoolingformerBartConfig
    model_class = PoolingformerBartModel
    short_classes: ClassVar = {"bart": BartForConditionalGeneration, "led": LEDForConditionalGeneration}


class PoolingformerMBartForConditionalGeneration(_ForConditionalGeneration, MBartForConditionalGeneration):
    """Poolingformer-mBART that generates text in many languages."""

    config_class = PoolingformerMBartConfig
    model_class = PoolingformerMBartModel
    short_classes: ClassVar = {"mbart": MBartForConditionalGeneration}

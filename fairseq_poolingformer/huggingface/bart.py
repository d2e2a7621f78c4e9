"""Poolingformer-BART and Poolingformer-mBART for transformers."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    BartForConditionalGeneration,
    BartForQuestionAnswering,
    BartForSequenceClassification,
    BartModel,
    Cache,
    MBartForConditionalGeneration,
    MBartForQuestionAnswering,
    MBartForSequenceClassification,
    MBartModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bart.modeling_bart import BartDecoder, BartEncoder, BartLearnedPositionalEmbedding
from transformers.models.mbart.modeling_mbart import MBartDecoder, MBartEncoder
from transformers.utils import ModelOutput, can_return_tuple

from fairseq_poolingformer.huggingface.attention import PROJECTIONS, Layout
from fairseq_poolingformer.huggingface.base import TwoLevelModel, share_of_mean
from fairseq_poolingformer.huggingface.configuration import PoolingformerBartConfig, PoolingformerMBartConfig
from fairseq_poolingformer.huggingface.encoders import Head, TwoLevelEncoder, with_parts
from fairseq_poolingformer.huggingface.packaged import Packaged
from fairseq_poolingformer.huggingface.padding import Rows, encode
from fairseq_poolingformer.levels import at_random_offsets


class OffsetPositions(BartLearnedPositionalEmbedding):
    """BART's and mBART's positions, with ``random_position_offsets``.

    In training every row begins at a random one of the positions that leave room for the batch's longest row.
    """

    def forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return (B, T, C) for the shape of ``input_ids``, (B, T)."""
        if not self.training:
            return super().forward(input_ids, *args, **kwargs)
        everywhere = torch.ones_like(input_ids, dtype=torch.bool)
        first = everywhere.cumsum(1) - 1 + self.offset
        return nn.Embedding.forward(self, at_random_offsets(first, everywhere, self.num_embeddings - 1))


class Seq2SeqEncoder(TwoLevelEncoder):
    """An encoder of transformers' with two-level attention."""

    layout = Layout("layers", "self_attn", PROJECTIONS, "attention_dropout")

    def _install(self, config: PreTrainedConfig) -> None:
        if config.random_position_offsets:
            self.embed_positions = OffsetPositions(config.max_position_embeddings, config.d_model)
        super()._install(config)

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
            self._of_part(super().forward),
            {"input_ids": input_ids, "inputs_embeds": inputs_embeds},
            attention_mask,
            global_attention_mask,
            longest=self.config.max_position_embeddings,
            global_tokens=self.config.global_tokens,
            **self.with_defaults(kwargs),
        )


class PoolingformerBartEncoder(Seq2SeqEncoder, BartEncoder):
    """BART's encoder with two-level attention."""

    config_class = PoolingformerBartConfig


class PoolingformerMBartEncoder(Seq2SeqEncoder, MBartEncoder):
    """mBART's encoder with two-level attention."""

    config_class = PoolingformerMBartConfig


class Seq2SeqDecoder(TwoLevelModel):
    """A decoder of transformers' with a number of positions of its own; ``parts`` as :func:`with_parts`'."""

    parts: ClassVar[tuple[type, ...]] = ()

    def __init__(self, config: PreTrainedConfig) -> None:
        with_parts(super().__init__, *self.parts)(config)
        self.max_target_positions = config.max_decoder_position_embeddings
        self.embed_positions = type(self.embed_positions)(self.max_target_positions, config.d_model)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Compute BART's forward pass.

        Raises:
            ValueError: the input, with what ``past_key_values`` holds, has more tokens than the decoder has positions.
        """
        given = input_ids if input_ids is not None else inputs_embeds
        if given is not None and not torch.compiler.is_compiling():
            tokens = given.size(1) + (0 if past_key_values is None else int(past_key_values.get_seq_length()))
            if tokens > (most := self.config.max_decoder_position_embeddings):
                raise ValueError(
                    f"{tokens} tokens for the decoder, which takes {most} (max_decoder_position_embeddings): truncate "
                    "the labels or decoder_input_ids, give one of them if neither was given, ask generate for a "
                    "smaller max_length, or make a longer model with from_short"
                )
        return super().forward(input_ids, past_key_values=past_key_values, inputs_embeds=inputs_embeds, **kwargs)


class PoolingformerBartDecoder(Seq2SeqDecoder, BartDecoder):
    """BART's decoder."""

    config_class = PoolingformerBartConfig


class PoolingformerMBartDecoder(Seq2SeqDecoder, MBartDecoder):
    """mBART's decoder."""

    config_class = PoolingformerMBartConfig


class Seq2SeqModel(Packaged, TwoLevelModel):
    """Encoder and decoder with their own numbers of positions."""

    encoder_class: type[Seq2SeqEncoder]
    decoder_class: type[Seq2SeqDecoder]

    def __init__(self, config: PreTrainedConfig) -> None:
        checkpointing = getattr(config, "gradient_checkpointing", False)  # which the first part would take for itself
        PreTrainedModel.__init__(self, config)  # transformers' own class would build a BART first
        encoder = self.encoder_class(config)
        tokens = encoder.embed_tokens
        self.shared = type(tokens)(*tokens.weight.shape, tokens.padding_idx, embed_scale=tokens.embed_scale)
        self.encoder, self.decoder = encoder, self.decoder_class(config)
        self.post_init()
        if checkpointing:
            self.gradient_checkpointing_enable()


class PoolingformerBartModel(Seq2SeqModel, BartModel):
    """BART whose encoder has two-level attention, and whose encoder and decoder have their own numbers of positions."""

    config_class = PoolingformerBartConfig
    encoder_class, decoder_class = PoolingformerBartEncoder, PoolingformerBartDecoder


class PoolingformerMBartModel(Seq2SeqModel, MBartModel):
    """mBART with two-level attention, changed as :class:`PoolingformerBartModel` is."""

    config_class = PoolingformerMBartConfig
    encoder_class, decoder_class = PoolingformerMBartEncoder, PoolingformerMBartDecoder


class Seq2SeqHead(Packaged, Head):
    """A model with a head around :class:`Seq2SeqModel`.

    Attributes:
        decoder_reads_input: where nobody gives the decoder another text.
    """

    decoder_reads_input: ClassVar = False

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
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute BART's forward pass; ``global_attention_mask`` as the encoder's.

        Trainer passes on only the inputs that the signature names. ``num_items_in_batch`` as :func:`share_of_mean`'s.

        Raises:
            ValueError: the decoder is to read an input with padding on the left.
        """
        if self.decoder_reads_input and Rows.of(attention_mask).order is not None:
            raise ValueError('this head takes padding on the right: give the tokenizer padding_side="right"')
        if encoder_outputs is None and (input_ids is not None or inputs_embeds is not None):
            names = ("output_hidden_states", "output_attentions")
            wanted = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
            encoder_outputs = self.get_encoder()(
                input_ids, attention_mask, inputs_embeds, global_attention_mask, return_dict=True, **wanted
            )
        kwargs["return_dict"] = True
        kwargs |= {} if labels is None else {"labels": labels}
        output = super().forward(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            **kwargs,
        )
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output


class Seq2SeqSpanHead(Seq2SeqHead):
    """A head whose labels are ``start_positions`` and ``end_positions``."""

    decoder_reads_input = True

    @property
    def max_tokens(self) -> int:
        """How many tokens both the encoder and the decoder take."""
        return min(self.config.max_position_embeddings, self.config.max_decoder_position_embeddings)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute BART's forward pass."""
        kwargs |= {"start_positions": start_positions, "end_positions": end_positions}
        return super().forward(input_ids, attention_mask, global_attention_mask=global_attention_mask, **kwargs)


class PoolingformerBartForConditionalGeneration(Seq2SeqHead, BartForConditionalGeneration):
    """Poolingformer-BART that generates text, such as summaries."""

    config_class = PoolingformerBartConfig
    base_class = PoolingformerBartModel


class PoolingformerBartForSequenceClassification(Seq2SeqHead, BartForSequenceClassification):
    """Poolingformer-BART that gives a class to a text, which its decoder reads once more, with full attention."""

    config_class = PoolingformerBartConfig
    base_class = PoolingformerBartModel
    decoder_reads_input = True


class PoolingformerBartForQuestionAnswering(Seq2SeqSpanHead, BartForQuestionAnswering):
    """Poolingformer-BART that finds spans in a text, which its decoder reads once more, with full attention."""

    config_class = PoolingformerBartConfig
    base_class = PoolingformerBartModel


class PoolingformerMBartForConditionalGeneration(Seq2SeqHead, MBartForConditionalGeneration):
    """Poolingformer-mBART that generates text in many languages."""

    config_class = PoolingformerMBartConfig
    base_class = PoolingformerMBartModel


class PoolingformerMBartForSequenceClassification(Seq2SeqHead, MBartForSequenceClassification):
    """Poolingformer-mBART that gives a class to a text, which its decoder reads once more, with full attention."""

    config_class = PoolingformerMBartConfig
    base_class = PoolingformerMBartModel
    decoder_reads_input = True


class PoolingformerMBartForQuestionAnswering(Seq2SeqSpanHead, MBartForQuestionAnswering):
    """Poolingformer-mBART that finds spans in a text, which its decoder reads once more, with full attention."""

    config_class = PoolingformerMBartConfig
    base_class = PoolingformerMBartModel

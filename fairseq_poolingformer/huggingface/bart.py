"""Encoders with decoders for transformers: BART and mBART."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqQuestionAnsweringModelOutput,
    Seq2SeqSequenceClassifierOutput,
)
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding
from transformers.utils import can_return_tuple

from fairseq_poolingformer.huggingface.attention import PROJECTIONS, AttentionLayout
from fairseq_poolingformer.huggingface.encoders import Head, TwoLevelEncoder, TwoLevelModel, share_of_mean
from fairseq_poolingformer.huggingface.padding import Rows, encode
from fairseq_poolingformer.levels import at_random_offsets


class OffsetPositions(BartLearnedPositionalEmbedding):
    """BART's and mBART's positions, with ``random_position_offsets``: rows begin where the batch's longest has room."""

    def forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return (B, T, C) for the shape of ``input_ids``, (B, T)."""
        if not self.training:
            return super().forward(input_ids, *args, **kwargs)
        everywhere = torch.ones_like(input_ids, dtype=torch.bool)
        first = everywhere.cumsum(1) - 1 + self.offset
        return nn.Embedding.forward(self, at_random_offsets(first, everywhere, self.num_embeddings - 1))


class Seq2SeqEncoder(TwoLevelEncoder):
    """An encoder of transformers' with two-level attention."""

    layout = AttentionLayout("layers", "self_attn", PROJECTIONS, "attention_dropout")

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
        """Compute BART's forward pass; ``global_attention_mask`` is (B, T), 1 at global tokens.

        Without it the first ``config.global_tokens`` are. ``attention_mask`` may have padding on either side.
        """
        return encode(
            super().forward,
            {"input_ids": input_ids, "inputs_embeds": inputs_embeds},
            attention_mask,
            global_attention_mask,
            longest=self.config.max_position_embeddings,
            global_tokens=self.config.global_tokens,
            **self.with_defaults(kwargs),
        )


class Seq2SeqDecoder(TwoLevelModel):
    """A decoder of transformers' with a number of positions of its own."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        self.max_target_positions = config.max_decoder_position_embeddings
        self.embed_positions = type(self.embed_positions)(self.max_target_positions, config.d_model)
        self.post_init()

    def forward(
        self, input_ids: Tensor | None = None, *, inputs_embeds: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Compute BART's forward pass; longer inputs, with the tokens in the cache, are refused."""
        inputs = input_ids if input_ids is not None else inputs_embeds
        if inputs is not None and not torch.compiler.is_compiling():
            caches = map(kwargs.get, ("past_key_values", "cache"))  # "cache" since transformers 5.24
            tokens = inputs.size(1) + sum(int(cache.get_seq_length()) for cache in caches if cache is not None)
            if tokens > (most := self.config.max_decoder_position_embeddings):
                raise ValueError(
                    f"{tokens} tokens for the decoder, which takes {most} (max_decoder_position_embeddings): truncate "
                    "the labels or decoder_input_ids, give one of them if neither was given, ask generate for a "
                    "smaller max_length, or make a longer model with from_short"
                )
        return super().forward(input_ids, inputs_embeds=inputs_embeds, **kwargs)


class Seq2SeqHead(Head):
    """A model with a head around the encoder and the decoder."""

    decoder_reads_input: ClassVar[bool] = False  # where nobody gives the decoder another text

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
    ) -> Seq2SeqLMOutput | Seq2SeqSequenceClassifierOutput | Seq2SeqQuestionAnsweringModelOutput:
        """Compute BART's forward pass; ``global_attention_mask`` as the encoder's.

        Trainer passes on only the inputs that the signature names. ``num_items_in_batch`` as :func:`share_of_mean`'s.
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


class Seq2SeqReader(Seq2SeqHead):
    """A head for classes, whose decoder reads the text once more, with full attention."""

    decoder_reads_input = True


class Seq2SeqSpanHead(Seq2SeqReader):
    """Seq2SeqHead for spans, whose labels are ``start_positions`` and ``end_positions``."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqQuestionAnsweringModelOutput:
        """Compute BART's forward pass."""
        kwargs |= {"start_positions": start_positions, "end_positions": end_positions}
        return super().forward(input_ids, attention_mask, global_attention_mask=global_attention_mask, **kwargs)

"""Transformers' encoders with two-level attention, and the models around them, whatever their family."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from fairseq_poolingformer.attention.score_terms.disentangled import CoarsePositions
from fairseq_poolingformer.huggingface.attention import AttentionLayout, EncoderSelfAttention, initialize
from fairseq_poolingformer.huggingface.padding import Rows, checked_input, encode
from fairseq_poolingformer.levels import at_random_offsets, check_positions, relative_projections, relative_tables
from fairseq_poolingformer.settings import TwoLevels


def share_of_mean(loss: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None) -> Tensor | None:
    """Return a batch's share of the mean over all batches that Trainer accumulates, so that the shares add up to it."""
    if loss is None or num_items_in_batch is None:
        return loss
    items = labels.ne(-100).sum().to(loss.device)
    return torch.where(items > 0, loss, 0.0) * items / num_items_in_batch  # without labels, the mean is not a number


class TwoLevelModel:
    """Comes before transformers' own class among a model's bases."""

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize(module)

    def with_defaults(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return ``kwargs`` with the configuration's ``output_attentions``, without which no layer here has weights."""
        wanted = kwargs.get("output_attentions")
        return {**kwargs, "output_attentions": self.config.output_attentions if wanted is None else wanted}


class TwoLevelEncoder(TwoLevelModel):
    """Comes before transformers' own encoder among a class's bases."""

    layout: ClassVar[AttentionLayout]  # where that one has its self-attention

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.max_tokens = config.max_position_embeddings - self.layout.first_position(config)
        self._install(config)
        self.post_init()

    def _install(self, config: PreTrainedConfig) -> None:
        self.layout.install(self)

    @property
    def _can_record_outputs(self) -> dict[str, Any]:
        """Outputs of each layer that transformers records."""
        theirs = super()._can_record_outputs or {}
        recorded = {"attentions": EncoderSelfAttention}
        return {**recorded, "hidden_states": theirs["hidden_states"]} if "hidden_states" in theirs else recorded


class TextEncoder(TwoLevelEncoder):
    """Encoders that are models by themselves: BERT's kin."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
            raise ValueError(
                "is_decoder and add_cross_attention ask for a decoder, but here every token sees both sides: leave "
                "them out"
            )
        super().__init__(config, *args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Compute the forward pass of transformers' encoder; ``global_attention_mask`` is (B, T), 1 at global tokens.

        Without it the first ``config.global_tokens`` are. ``attention_mask`` may have padding on either side.
        """
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
        return encode(
            self._encode,
            {**inputs, "token_type_ids": token_type_ids, "position_ids": position_ids},
            attention_mask,
            global_attention_mask,
            longest=self.max_tokens,
            global_tokens=self.config.global_tokens,
            **self.with_defaults(kwargs),
        )

    def _encode(
        self, input_ids: Tensor | None, inputs_embeds: Tensor | None, position_ids: Tensor | None, **kwargs: Any
    ) -> BaseModelOutput:
        """Run transformers' encoder on rows whose tokens come first; in training they may begin at random positions."""
        if position_ids is None and self.config.random_position_offsets and self.training:
            before = self.layout.first_position(self.config) - 1  # padding's position and id, where it has one
            if input_ids is not None:
                is_token = input_ids.ne(before)
            else:
                is_token = inputs_embeds.new_ones(inputs_embeds.shape[:2], dtype=torch.bool)
            position_ids = is_token.cumsum(1) * is_token + before
            position_ids = at_random_offsets(position_ids, is_token, self.config.max_position_embeddings - 1)
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds, "position_ids": position_ids}
        return super().forward(**inputs, **kwargs)


class WithParts(TwoLevelModel):
    """Mixin before a transformers class: replaces each child whose class is a part's last base by that part."""

    parts: ClassVar[tuple[type, ...]] = ()

    def __init__(self, config: PreTrainedConfig) -> None:
        device = torch.empty(0).device  # meta inside of from_pretrained
        checkpointing = getattr(config, "gradient_checkpointing", False)  # which the first child takes for itself
        with torch.device("meta"):
            super().__init__(config)
        parts = {part.__bases__[-1]: part for part in self.parts}
        replaced = {name: parts[type(child)] for name, child in self.named_children() if type(child) in parts}
        if unused := set(self.parts).difference(replaced.values()):
            names = ", ".join(part.__bases__[-1].__name__ for part in unused)
            raise TypeError(f"{type(self).__bases__[-1].__name__} of this transformers has no child {names}")
        self.to_empty(device=device, recurse=False)
        for name, child in list(self.named_children()):
            if name in replaced:
                pooler = {"add_pooling_layer": False} if getattr(child, "pooler", child) is None else {}
                setattr(self, name, replaced[name](child.config, **pooler))
            else:
                child.to_empty(device=device).apply(_reset_parameters)
        self.post_init()  # once more, since nothing on meta has values or is tied to the parts
        if checkpointing:
            self.gradient_checkpointing_enable()


def _reset_parameters(module: Any) -> None:
    """Draw a layer's initial values, as its constructor does, so that a seed gives what it gives transformers'."""
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


class Head(WithParts):
    """Comes before transformers' own model with a head among a class's bases."""

    reads_first_token: ClassVar[bool] = False  # so that left padding moves to the right before the head

    def _prepared(
        self, ids: Tensor | None, mask: Tensor | None, types: Any, positions: Any, embeds: Any, global_mask: Any
    ) -> dict[str, Tensor | None]:
        """Return the inputs, (B, T), by the names that transformers' class gives them."""
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
        inputs: tuple[Any, ...] = (ids, mask, types, positions, embeds, global_mask)
        if self.reads_first_token:
            checked_input(ids, embeds, mask, global_mask)
            inputs = tuple(map(Rows.of(mask).moved, inputs))
        return dict(zip((*names, "global_attention_mask"), inputs, strict=True))


class LabelHead(Head):
    """A head whose labels are ``labels``."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput | TokenClassifierOutput | MaskedLMOutput | MultipleChoiceModelOutput:
        """Compute the forward pass of transformers' class; ``num_items_in_batch`` as :func:`share_of_mean`'s.

        Trainer passes on only the inputs that the signature names, and sentence-transformers reads the names of the
        outputs there.
        """
        inputs = self._prepared(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, global_attention_mask
        )
        output = super().forward(**inputs, labels=labels, **{**kwargs, "return_dict": True})
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output


class TextHead(LabelHead):
    """A head for classes of texts."""

    reads_first_token = True


class ChoiceHead(TextHead):
    """A head for multiple choice, whose inputs are (B, choices, T)."""

    def _prepared(self, ids: Tensor | None, *inputs: Tensor | None) -> dict[str, Tensor | None]:
        flat = super()._prepared(*(None if x is None else x.flatten(0, 1) for x in (ids, *inputs)))
        checked_input(flat["input_ids"], flat["inputs_embeds"], None, None)
        input_name, shape = ("inputs_embeds", inputs[3].shape) if ids is None else ("input_ids", ids.shape)
        return {**flat, input_name: flat[input_name].view(shape)}  # transformers flattens it, and not all of the others


class EncoderSpanHead(Head):
    """A head for question answering, whose labels are ``start_positions`` and ``end_positions``."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Compute the forward pass of transformers' class."""
        inputs = self._prepared(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, global_attention_mask
        )
        return super().forward(**inputs, start_positions=start_positions, end_positions=end_positions, **kwargs)


class NoPositions(nn.Module):
    """Stands for the table of absolute positions in models with relative ones alone."""

    def forward(self, position_ids: Tensor) -> float:
        """Return 0, which transformers adds to the embeddings."""
        return 0.0


class RelativeEncoder(TextEncoder):
    """RoBERTa's encoder with two-level attention, and with DeBERTa's relative positions where they are asked for."""

    def _install(self, config: PreTrainedConfig) -> None:
        settings, sizes = TwoLevels.of(config), (config.hidden_size, config.num_attention_heads)
        rest = (config.num_hidden_layers, *sizes, config.hidden_dropout_prob, self.max_tokens)
        self.layout.install(self, lambda layer: {"relative": relative_projections(settings, layer, *rest)})
        tables = relative_tables(settings, config.hidden_size, self.max_tokens)
        self.encoder.relative_positions, self.encoder.global_relative_positions = tables
        if not config.absolute_positions:
            if tables[0] is None:
                raise ValueError(
                    "absolute_positions=False without relative_attention leaves the model without any positions: set "
                    'relative_attention="c2p,p2c", or absolute_positions=True'
                )
            check_positions(settings, may_have=True)
            self.embeddings.position_embeddings = NoPositions()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, CoarsePositions):
            init.constant_(module.tokens_per_row, module.row_length)

    def _encode(self, *args: Any, **kwargs: Any) -> BaseModelOutput:
        """Give every layer's attention the tables of relative positions by the names that it takes."""
        embeddings = {name: getattr(self.encoder, name) for name in ("relative_positions", "global_relative_positions")}
        tables = {name: table.weight for name, table in embeddings.items() if table is not None}
        return super()._encode(*args, **tables, **kwargs)

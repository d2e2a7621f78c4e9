"""Poolingformer-ModernBERT for transformers: full attention becomes two levels, windows stay windows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    ModernBertForMaskedLM,
    ModernBertForMultipleChoice,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, QuestionAnsweringModelOutput
from transformers.models.modernbert.modeling_modernbert import (
    ModernBertEncoderLayer,
    ModernBertPredictionHead,
    ModernBertRotaryEmbedding,
)
from transformers.utils import ModelOutput, can_return_tuple

from fairseq_poolingformer.attention import LevelWeights
from fairseq_poolingformer.attention.rotary import Rotary, pool_positions
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention
from fairseq_poolingformer.huggingface.base import TwoLevelModel, share_of_mean
from fairseq_poolingformer.huggingface.configuration import PoolingformerModernBertConfig
from fairseq_poolingformer.huggingface.packaged import Packaged
from fairseq_poolingformer.huggingface.padding import Rows, checked_input, encode
from fairseq_poolingformer.levels import attention_arguments
from fairseq_poolingformer.settings import DEFAULTS, TwoLevels

ROPE_TYPES = ("default", "linear", "ntk", "yarn")
LEARNED_POSITIONS = ("position_init", "random_position_offsets")  # settings about them


class ModernBertSelfAttention(EncoderSelfAttention):
    """Two-level attention in place of ``ModernBertAttention``, whose ``Wqkv`` is three projections here.

    Layers without full attention have no global tokens, as in ModernBERT.

    Args:
        config: the model's.
        layer: 0-based.
    """

    def __init__(self, config: PoolingformerModernBertConfig, layer: int) -> None:
        arguments = attention_arguments(TwoLevels.of(config), layer, config.num_hidden_layers)
        arguments |= {"dropout": config.attention_dropout, "bias": config.attention_bias}
        has_global = config.layer_types[layer] == "full_attention"
        arguments["separate_global_projections"] &= has_global
        super().__init__(
            config.hidden_size, config.num_attention_heads, global_tokens=config.global_tokens, **arguments
        )
        self.has_global_tokens, self.out_drop = has_global, nn.Dropout(config.attention_dropout)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, LevelWeights | None]:
        """Attend as :class:`EncoderSelfAttention`, with dropout at the end."""
        attended, weights = super().forward(*args, **kwargs)
        return self.out_drop(attended), weights

    def _arguments(self, masks: Tensor, position_embeddings: tuple[Tensor, Tensor], **unused: Any) -> dict[str, Any]:
        """Return the arguments of :class:`TwoLevelAttention`'s methods.

        Args:
            masks: those of :func:`planes`.
            position_embeddings: cos and sin of the tokens, then of the pools, (B or 1, T + P, D).
            unused: others that transformers gives.
        """
        arguments = super()._arguments(masks) | {"rotary": Rotary(*position_embeddings)}
        return arguments if self.has_global_tokens else arguments | {"global_mask": None}


class RotaryPositions(ModernBertRotaryEmbedding):
    """Those of transformers, whose frequencies stay in float32 where the model is cast: positions count thousands."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositions:
        def moved_alone(x: Tensor) -> Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        return super()._apply(moved_alone, recurse)


def rotary_config(config: PoolingformerModernBertConfig) -> PoolingformerModernBertConfig:
    """Return the configuration of the rotary positions: the model's, with what ``rope_type`` makes of full attention.

    Raises:
        ValueError: ``rope_type`` is unknown, or cannot be had.
    """
    kind, original = config.rope_type, config.original_max_position_embeddings
    if kind not in ROPE_TYPES:
        raise ValueError(
            f"rope_type must be one of {', '.join(ROPE_TYPES)}, got {kind!r}; give rope_parameters for others of "
            "transformers'"
        )
    if kind == "default":
        return config
    own = config.rope_parameters["full_attention"]
    if type(original) is not int or original < 1:
        raise ValueError(
            f"rope_type={kind!r} needs original_max_position_embeddings, the length that the base was trained for, "
            f"got {original!r}"
        )
    if own["rope_type"] != "default":
        raise ValueError(
            f"rope_type={kind!r}, but the base's positions are scaled already: rope_parameters have "
            f"{own['rope_type']!r}; leave rope_type out, or give rope_parameters"
        )
    growth = max(1.0, config.max_position_embeddings / original)
    if kind == "ntk":
        head_dim = config.hidden_size // config.num_attention_heads
        changes = {"rope_theta": own["rope_theta"] * growth ** (head_dim / (head_dim - 2))}
    else:
        changes = {"rope_type": kind, "factor": growth}
        changes |= {"original_max_position_embeddings": original} if kind == "yarn" else {}
    scaled = copy.deepcopy(config)
    scaled.rope_parameters["full_attention"] = own | changes
    return scaled


class _ModernBert(Packaged, TwoLevelModel):
    """What every model in this module has before transformers' own class."""

    config_class = PoolingformerModernBertConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ModernBertSelfAttention):
            config = self.config
            cutoff = 3 if config.initializer_cutoff_factor is None else config.initializer_cutoff_factor
            for name, linear in module.named_children():
                if isinstance(linear, nn.Linear):
                    std = config.initializer_range
                    std /= (2 * config.num_hidden_layers) ** 0.5 if name == "out_proj" else 1.0
                    init.trunc_normal_(linear.weight, std=std, a=-cutoff * std, b=cutoff * std)


class PoolingformerModernBertModel(_ModernBert, ModernBertModel):
    """ModernBERT's encoder, in which the layers of full attention have two levels.

    Raises:
        ValueError: a setting is out of range, or is about learned positions.
    """

    short_classes: ClassVar = {"modernbert": ModernBertModel}
    _can_record_outputs: ClassVar = {"hidden_states": ModernBertEncoderLayer, "attentions": ModernBertSelfAttention}

    def __init__(self, config: PoolingformerModernBertConfig) -> None:
        if given := [name for name in LEARNED_POSITIONS if getattr(config, name) != DEFAULTS[name]]:
            raise ValueError(f"{given[0]} is about learned positions, and this model has rotary ones: leave it out")
        super().__init__(config)
        for number, layer in enumerate(self.layers):
            layer.attn = ModernBertSelfAttention(config, number)
        self.rotary_emb = RotaryPositions(config=rotary_config(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Compute ModernBERT's forward pass.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 at real tokens, padding on either side; None without padding.
            position_ids: (B or 1, T); None counts a row's real tokens.
            inputs_embeds: (B, T, C) in place of ``input_ids``.
            global_attention_mask: (B, T), 1 at global tokens; None for the first ``config.global_tokens`` ones.
            kwargs: as ModernBERT's.
        """
        return encode(
            self._encode,
            {"input_ids": input_ids, "inputs_embeds": inputs_embeds, "position_ids": position_ids},
            attention_mask,
            global_attention_mask,
            longest=self.config.max_position_embeddings,
            global_tokens=self.config.global_tokens,
            **self.with_defaults(kwargs),
        )

    def _encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        position_ids: Tensor | None,
        attention_mask: Tensor,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """ModernBERT's forward pass of rows whose tokens come first; the pools' positions follow the tokens'."""
        given = inputs_embeds if input_ids is None else input_ids
        positions = torch.arange(given.size(1), device=given.device)[None] if position_ids is None else position_ids
        padding_mask = attention_mask[:, 1, 0] if attention_mask.size(1) == 2 else None
        pooling = next((layer.attn.pooling for layer in self.layers if layer.attn.pooling is not None), None)
        if pooling is not None:
            pools = pool_positions(positions, pooling, padding_mask)
            positions = torch.cat([positions.float().expand(pools.size(0), -1), pools], dim=1)
        masks = dict.fromkeys(("full_attention", "sliding_attention"), attention_mask)
        return super().forward(input_ids, masks, positions, inputs_embeds, **kwargs)


class WithHead(_ModernBert):
    """A head on :class:`PoolingformerModernBertModel`.

    Attributes:
        reads_first_token: the head may read the first token, so that left padding moves to the right before it.
    """

    reads_first_token: ClassVar = False

    def __init__(self, config: PoolingformerModernBertConfig) -> None:
        PreTrainedModel.__init__(self, config)  # transformers' own class would build a ModernBERT first
        self.num_labels = config.num_labels
        self.model = PoolingformerModernBertModel(config)
        self.head = ModernBertPredictionHead(config)
        self._add_output(config)
        self.post_init()

    def _add_output(self, config: PoolingformerModernBertConfig) -> None:
        self.drop = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the forward pass of transformers' class. Trainer passes on only the inputs that the signature names.

        Args:
            labels: as transformers' class has them.
            num_items_in_batch: as :func:`share_of_mean`'s.
            input_ids, attention_mask, position_ids, inputs_embeds, global_attention_mask, kwargs: as
                :meth:`PoolingformerModernBertModel.forward` has them.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "global_attention_mask": global_attention_mask,
        }
        if self.reads_first_token:
            checked_input(input_ids, inputs_embeds, attention_mask, global_attention_mask)
            rows = Rows.of(attention_mask)
            inputs = {name: rows.moved(x) for name, x in inputs.items()}
        output = super().forward(**inputs, labels=labels, **{**kwargs, "return_dict": True})
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output


class PoolingformerModernBertForMaskedLM(WithHead, ModernBertForMaskedLM):
    """Poolingformer-ModernBERT with its head for masked language modelling."""

    short_classes: ClassVar = {"modernbert": ModernBertForMaskedLM}

    def _add_output(self, config: PoolingformerModernBertConfig) -> None:
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=config.decoder_bias)
        self.sparse_prediction = config.sparse_prediction
        self.sparse_pred_ignore_index = config.sparse_pred_ignore_index


class PoolingformerModernBertForSequenceClassification(WithHead, ModernBertForSequenceClassification):
    """Poolingformer-ModernBERT with transformers' head for classes, of the first token or of all tokens' mean."""

    short_classes: ClassVar = {"modernbert": ModernBertForSequenceClassification}
    reads_first_token = True


class PoolingformerModernBertForTokenClassification(WithHead, ModernBertForTokenClassification):
    """Poolingformer-ModernBERT with transformers' head for a class of each token."""

    short_classes: ClassVar = {"modernbert": ModernBertForTokenClassification}


class PoolingformerModernBertForQuestionAnswering(WithHead, ModernBertForQuestionAnswering):
    """Poolingformer-ModernBERT with transformers' head for spans."""

    short_classes: ClassVar = {"modernbert": ModernBertForQuestionAnswering}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Compute ModernBERT's forward pass, whose labels are ``start_positions`` and ``end_positions``."""
        return ModernBertForQuestionAnswering.forward(
            self,
            input_ids,
            attention_mask,
            position_ids,
            start_positions,
            end_positions,
            inputs_embeds=inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )


class PoolingformerModernBertForMultipleChoice(WithHead, ModernBertForMultipleChoice):
    """Poolingformer-ModernBERT with transformers' head for a choice among texts: inputs are (B, choices, T)."""

    short_classes: ClassVar = {"modernbert": ModernBertForMultipleChoice}

    def _add_output(self, config: PoolingformerModernBertConfig) -> None:
        self.drop = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute ModernBERT's forward pass; the masks are (B, choices, T) as well."""
        if attention_mask is None:  # which transformers needs for a mean
            given = inputs_embeds if input_ids is None else input_ids
            attention_mask = torch.ones(given.shape[:3], dtype=torch.long, device=given.device)
        if global_attention_mask is not None:
            global_attention_mask = global_attention_mask.flatten(0, 1)
        inputs = (input_ids, attention_mask, position_ids, inputs_embeds, labels, global_attention_mask)
        return super().forward(*inputs, **kwargs)

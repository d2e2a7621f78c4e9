"""Poolingformer-ModernBERT for transformers: full attention becomes two levels, windows stay windows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.modernbert.modeling_modernbert import ModernBertRotaryEmbedding

from fairseq_poolingformer.attention import LevelWeights, Pooling
from fairseq_poolingformer.attention.rotary import Rotary, pool_positions
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention
from fairseq_poolingformer.huggingface.encoders import ChoiceHead, TextEncoder
from fairseq_poolingformer.levels import check_positions
from fairseq_poolingformer.settings import TwoLevels

ROPE_TYPES = ("default", "linear", "ntk", "yarn")


class ModernBertSelfAttention(EncoderSelfAttention):
    """Two-level attention with ``Wqkv`` split in three; global tokens in layers of full attention alone."""

    def __init__(
        self, *args: Any, has_global_tokens: bool, dropout: float, separate_global_projections: bool, **arguments: Any
    ) -> None:
        separate = separate_global_projections and has_global_tokens
        super().__init__(*args, dropout=dropout, separate_global_projections=separate, **arguments)
        self.has_global_tokens, self.out_drop = has_global_tokens, nn.Dropout(dropout)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, LevelWeights | None]:
        """Attend as :class:`EncoderSelfAttention`, with dropout at the end."""
        attended, weights = super().forward(*args, **kwargs)
        return self.out_drop(attended), weights

    def _arguments(self, masks: Tensor, position_embeddings: tuple[Tensor, Tensor], **unused: Any) -> dict[str, Any]:
        """Add ``position_embeddings``: cos and sin of the tokens, then of the pools, (B or 1, T + P, D)."""
        arguments = super()._arguments(masks) | {"rotary": Rotary(*position_embeddings)}
        return arguments if self.has_global_tokens else arguments | {"masks": arguments["masks"].without_globals}


class RotaryPositions(ModernBertRotaryEmbedding):
    """transformers' rotary embedding; keeps its frequencies in float32, since positions reach thousands."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositions:
        def moved_alone(x: Tensor) -> Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        return super()._apply(moved_alone, recurse)


def rotary_config(config: PreTrainedConfig) -> Any:
    """Return the configuration of the rotary positions: with what ``rope_type`` makes of full attention."""
    kind, original = config.rope_type, config.original_max_position_embeddings
    if kind not in ROPE_TYPES:
        raise ValueError(
            f"rope_type must be one of {', '.join(ROPE_TYPES)}, got {kind!r}; give rope_parameters for others of "
            "transformers'"
        )
    if kind == "default":
        return config
    parameters = config.rope_parameters["full_attention"]
    if type(original) is not int or original < 1:
        raise ValueError(
            f"rope_type={kind!r} needs original_max_position_embeddings, the length that the base was trained for, "
            f"got {original!r}"
        )
    if parameters["rope_type"] != "default":
        raise ValueError(
            f"rope_type={kind!r}, but the base's positions are scaled already: rope_parameters have "
            f"{parameters['rope_type']!r}; leave rope_type out, or give rope_parameters"
        )
    growth = max(1.0, config.max_position_embeddings / original)
    if kind == "ntk":
        head_dim = config.hidden_size // config.num_attention_heads
        changes = {"rope_theta": parameters["rope_theta"] * growth ** (head_dim / (head_dim - 2))}
    else:
        changes = {"rope_type": kind, "factor": growth}
        changes |= {"original_max_position_embeddings": original} if kind == "yarn" else {}
    scaled = copy.deepcopy(config)
    scaled.rope_parameters["full_attention"] = parameters | changes
    return scaled


class ModernBertEncoder(TextEncoder):
    """ModernBERT's encoder, in which the layers of full attention have two levels."""

    def __init__(self, config: PreTrainedConfig) -> None:
        config.complete()
        check_positions(TwoLevels.of(config))
        super().__init__(config)

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

    def _install(self, config: PreTrainedConfig) -> None:
        full = [kind == "full_attention" for kind in config.layer_types]
        self.layout.install(self, lambda layer: {"bias": config.attention_bias, "has_global_tokens": full[layer]})
        self.rotary_emb = RotaryPositions(config=rotary_config(config))

    def _encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        position_ids: Tensor | None,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,  # which ModernBERT does not have
        **kwargs: Any,
    ) -> BaseModelOutput:
        """ModernBERT's forward pass of rows whose tokens come first; the pools' positions follow the tokens'."""
        source = inputs_embeds if input_ids is None else input_ids
        positions = torch.arange(source.size(1), device=source.device)[None] if position_ids is None else position_ids
        if self.pooling is not None:
            padding_mask = attention_mask[:, 1, 0] if attention_mask.size(1) == 2 else None
            pools = pool_positions(positions, self.pooling, padding_mask)
            positions = torch.cat([positions.float().expand(pools.size(0), -1), pools], dim=1)
        masks = dict.fromkeys(("full_attention", "sliding_attention"), attention_mask)
        return super()._encode(input_ids, inputs_embeds, positions, attention_mask=masks, **kwargs)

    @property
    def pooling(self) -> Pooling | None:
        """Level two's pools, the same in all layers."""
        return next((layer.attn.pooling for layer in self.layers if layer.attn.pooling is not None), None)


class ModernBertChoiceHead(ChoiceHead):
    """Adds an all-ones mask: transformers' mean pooling fails on None."""

    def _prepared(self, *inputs: Tensor | None) -> dict[str, Tensor | None]:
        prepared = super()._prepared(*inputs)
        if prepared["attention_mask"] is None:
            x = prepared["inputs_embeds"] if prepared["input_ids"] is None else prepared["input_ids"]
            prepared["attention_mask"] = torch.ones(x.shape[:3], dtype=torch.long, device=x.device).flatten(0, 1)
        return prepared

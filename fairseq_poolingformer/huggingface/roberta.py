"""Poolingformer-RoBERTa for transformers; XLM-R and CamemBERT are the same model with their own tokenizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling

from fairseq_poolingformer.attention.relative_projections import CoarsePositions
from fairseq_poolingformer.huggingface.encoders import TextEncoder
from fairseq_poolingformer.levels import check_offsets, relative_projections, relative_tables
from fairseq_poolingformer.settings import TwoLevels


class NoPositions(nn.Module):
    """In place of the table of absolute positions in models that have relative ones alone."""

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
            check_offsets(settings)
            self.embeddings.position_embeddings = NoPositions()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, CoarsePositions):
            init.constant_(module.tokens_per_row, module.row_length)

    def _encode(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Give every layer's attention the tables of relative positions by the names that it takes."""
        found = {name: getattr(self.encoder, name) for name in ("relative_positions", "global_relative_positions")}
        tables = {name: table.weight for name, table in found.items() if table is not None}
        return super()._encode(*args, **tables, **kwargs)

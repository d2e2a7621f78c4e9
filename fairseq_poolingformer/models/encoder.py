"""fairseq's transformer encoder with two-level attention."""

from __future__ import annotations

import logging
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import FairseqDropout, LearnedPositionalEmbedding
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_poolingformer.attention import Masks, RelativeProjections, TwoLevelAttention
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.levels import attention_arguments, check_positions, relative_projections, relative_tables
from fairseq_poolingformer.models.compiled import compiled
from fairseq_poolingformer.models.positions import LearnedPositions
from fairseq_poolingformer.settings import TwoLevelFlags
from fairseq_poolingformer.training.nonfinite import require_finite_output
from fairseq_poolingformer.training.optimizers import POOLED
from fairseq_poolingformer.training.recompute import SeededDropout, activated_linear

logger = logging.getLogger(__name__)


class PoolingformerEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer around TwoLevelAttention; ``cfg`` has :class:`TwoLevelFlags`, ``layer`` counts from 0."""

    def __init__(self, cfg, layer: int) -> None:
        self.layer = layer  # before super().__init__, which builds the attention
        super().__init__(cfg)
        self.dropout_module = SeededDropout(cfg.dropout, module_name=type(self).__name__)

    def build_self_attention(self, embed_dim: int, cfg) -> nn.Module:
        for kind in ("pq", "scalar"):
            if getattr(cfg.quant_noise, kind) > 0:
                raise ValueError(f"--quant-noise-{kind} is not supported in Poolingformer's encoder; leave it out")
        settings, place = TwoLevelFlags.of(cfg), (self.layer, cfg.encoder.layers)
        sizes = (embed_dim, cfg.encoder.attention_heads)
        relative = relative_projections(settings, *place, *sizes, cfg.dropout, cfg.max_source_positions)
        self.relative_projections: RelativeProjections | None = relative
        if relative is not None:
            relative.dropout = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        attention = TwoLevelAttention(
            *sizes,
            scale=None if relative is None else relative.scale,
            dropout=cfg.attention_dropout,
            batch_first=False,
            **attention_arguments(settings, *place, cfg.encoder.attention_heads),
        )
        for name, parameter in attention.named_parameters():
            if name.startswith("pooled_"):
                parameter.param_group = POOLED  # for --pooled-lr
        return attention

    def make_generation_fast_(
        self, name: str = "", retain_dropout: bool = False, retain_dropout_modules: Any = None, **unused: Any
    ) -> None:
        """With ``--retain-dropout`` generation keeps the attention's dropout; its module is ``TwoLevelAttention``."""
        named = retain_dropout_modules is None or type(self.self_attn).__name__ in retain_dropout_modules
        self.self_attn.retain_dropout = retain_dropout and named

    def forward(
        self,
        x: Tensor,
        masks: Masks | None = None,
        relative_positions: Tensor | None = None,
        global_relative_positions: Tensor | None = None,
    ) -> Tensor:
        """Attention and feed-forward of ``x`` (T, B, C), residual; masks of (B, T) tokens, P (2k, C), P_g (2k_g, C)."""
        score_terms = ()
        if self.relative_projections is not None:
            score_terms = (self.relative_projections(relative_positions, global_relative_positions),)
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x = self.self_attn(x, masks=masks, score_terms=score_terms)
        x = self.residual_connection(self.dropout_module(x), residual)
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.fc1(x)
        if self.activation_dropout_module.p:
            x = self.fc2(self.activation_dropout_module(self.activation_fn(x)))
        else:
            x = activated_linear(x, self.activation_fn, self.fc2)
        x = self.residual_connection(self.dropout_module(x), residual)
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x


def rows_of(new_order: Tensor, beams: int) -> Tensor:
    """The row of the source for each sentence of ``new_order``, fairseq's order of all beams."""
    return new_order.view(-1, beams)[:, 0] // beams


def wrapped(layer: nn.Module, cfg) -> nn.Module:
    """Wrap a layer as fairseq wraps its own: for ``--checkpoint-activations``, and for FSDP, whatever its size then."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class PoolingformerEncoder(TransformerEncoderBase):
    """fairseq's transformer encoder with Poolingformer's layers, global tokens, and shared relative positions."""

    def __init__(self, cfg, dictionary, embed_tokens) -> None:
        self._layers_built, self.compile_layers = 0, getattr(cfg, "compile_layers", None)
        super().__init__(cfg, dictionary, embed_tokens)
        self.dropout_module = SeededDropout(cfg.dropout, module_name=type(self).__name__)
        settings = TwoLevelFlags.of(cfg)
        if isinstance(self.embed_positions, LearnedPositionalEmbedding):
            self.embed_positions = LearnedPositions(self.embed_positions, settings.random_position_offsets)
        else:
            check_positions(settings, may_have=settings.relative_attention != "none")
        self.global_tokens = settings.global_tokens
        # where no window has a limit, P has a row for every pair, also for pairs with a global token
        self.windows_limited = any(window != UNLIMITED for window in settings.windows(cfg.encoder.layers))
        settings.check(cfg.encoder.layers)  # layers check it, too, but there may be none
        for remark in settings.remarks(cfg.encoder.layers):
            logger.warning(remark)
        tables = relative_tables(settings, cfg.encoder.embed_dim, cfg.max_source_positions)
        self.relative_positions, self.global_relative_positions = tables

    def build_encoder_layer(self, cfg) -> nn.Module:
        layer = PoolingformerEncoderLayer(cfg, self._layers_built)
        self._layers_built += 1
        if self.compile_layers:
            layer = compiled(layer, cfg)
        return wrapped(layer, cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        global_mask: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode (B, T) indices, padded on either side, or (B, T, C) ``token_embeddings``; fairseq's encoder output."""
        # ``global_mask`` (B, T) bool, True at global tokens, None for the first --global-tokens
        padding_mask = src_tokens.eq(self.padding_idx)
        self._check_length(padding_mask)
        if global_mask is None:
            global_mask = self.first_tokens(padding_mask)
        lengths = (~padding_mask).sum(1, dtype=torch.int32, keepdim=True)
        # plain arguments, because a checkpointed layer passes no gradient to tensors inside another object
        tables = self._relative_tables(global_mask)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        masks = Masks(global_mask, padding_mask if padding_mask.any() else None)  # read once, for all layers
        if self.compile_layers and self.training:
            masks = masks.settled()
        if masks.padding is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)

        states = [x] if return_all_hiddens else []
        if not self.training:
            require_finite_output(x, "the encoder's embeddings")
        for index, layer in enumerate(self.layers):
            x = layer(x, masks=masks, **tables)
            if not self.training:
                require_finite_output(x, f"encoder layer {index}")
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding_mask],
            "masks": [masks.without_globals],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Keep the masks of the sentences that are not finished; :class:`~.decoder.CrossAttention` keeps their keys."""
        (masks,) = encoder_out["masks"]
        if masks.padding is None:
            return encoder_out
        rows = masks.padding.size(0)
        beams = encoder_out.get("beams") or new_order.numel() // rows  # the first order repeats each sentence
        if rows * beams != new_order.numel():
            masks = Masks(None, masks.padding.index_select(0, rows_of(new_order, beams)))
        return encoder_out | {"masks": [masks], "beams": beams}

    def _check_length(self, padding_mask: Tensor) -> None:
        """Refuse rows longer than ``max_positions``, where a table of positions does not refuse them."""
        longest = self.max_positions()
        if self.embed_positions is not None or padding_mask.size(1) <= longest:
            return
        tokens = int((~padding_mask).sum(1).max())
        if tokens > longest:
            raise ValueError(
                f"a row has {tokens} tokens, the model takes {longest}: give it shorter rows, or raise --max-positions"
            )

    def _relative_tables(self, global_mask: Tensor | None) -> dict[str, Tensor]:
        """The tables of relative positions by the names of the layers' arguments."""
        if self.relative_positions is None:
            return {}
        tables = {"relative_positions": self.relative_positions.weight}
        if self.global_relative_positions is not None:
            tables["global_relative_positions"] = self.global_relative_positions.weight
        elif global_mask is not None and self.windows_limited:
            raise ValueError(
                "global tokens have no relative positions in a model built with --global-tokens 0 or "
                "--global-relative-positions 0: build it with both at least 1"
            )
        return tables

    def first_tokens(self, padding_mask: Tensor) -> Tensor | None:
        """(B, T) bool, True at the first ``--global-tokens`` tokens that are not padding; None when that is 0."""
        if not self.global_tokens:
            return None
        return ((~padding_mask).cumsum(1) <= self.global_tokens) & ~padding_mask

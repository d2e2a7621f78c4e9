"""fairseq's transformer encoder with two-level attention."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import LearnedPositionalEmbedding
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_poolingformer.attention import GlobalTokens, RelativeProjections, TwoLevelAttention
from fairseq_poolingformer.attention.dropout import dropout_seed
from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.levels import attention_arguments, check_offsets, relative_projections, relative_tables
from fairseq_poolingformer.models.division import Division
from fairseq_poolingformer.models.positions import LearnedPositions
from fairseq_poolingformer.settings import TwoLevelFlags
from fairseq_poolingformer.training.optimizers import POOLED
from fairseq_poolingformer.training.recompute import SeededDropout, activated_linear, token_dropout

logger = logging.getLogger(__name__)

ATTENDED, ACTIVATED, FED = range(3)  # lanes of a layer's dropouts


class PoolingformerEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer around :class:`~fairseq_poolingformer.attention.TwoLevelAttention`.

    Args:
        cfg: fairseq's TransformerConfig with the settings of :class:`TwoLevelFlags`.
        layer: the layer's 0-based number.

    Raises:
        ValueError: a flag is out of range.
    """

    def __init__(self, cfg, layer: int) -> None:
        self.layer = layer  # before super().__init__, which builds the attention
        super().__init__(cfg)
        self.dropout_module = SeededDropout(cfg.dropout, module_name=type(self).__name__)

    def build_self_attention(self, embed_dim: int, cfg) -> nn.Module:
        if cfg.quant_noise.pq > 0:
            raise ValueError("--quant-noise-pq is not supported in Poolingformer's encoder; leave it out")
        settings, place = TwoLevelFlags.of(cfg), (self.layer, cfg.encoder.layers)
        sizes = (embed_dim, cfg.encoder.attention_heads)
        relative = relative_projections(settings, *place, *sizes, cfg.dropout, cfg.max_source_positions)
        self.relative_projections: RelativeProjections | None = relative
        attention = TwoLevelAttention(
            *sizes,
            scale=None if relative is None else relative.scale,
            dropout=cfg.attention_dropout,
            batch_first=False,
            **attention_arguments(settings, *place),
        )
        for name, parameter in attention.named_parameters():
            if name.startswith("pooled_"):
                parameter.param_group = POOLED  # for --pooled-lr
        return attention

    def forward(
        self,
        x: Tensor,
        encoder_padding_mask: Tensor | None = None,
        global_mask: Tensor | GlobalTokens | None = None,
        relative_positions: Tensor | None = None,
        global_relative_positions: Tensor | None = None,
        shard: Any = None,
    ) -> Tensor:
        """Attention and feed-forward, each with its residual connection.

        Args:
            x: (T, B, C), of a part of the document where there is a shard.
            encoder_padding_mask: (B, T) bool, True at padding; None without any.
            global_mask: (B, T) bool, True at global tokens, or the GlobalTokens of such a mask.
            relative_positions: P, (2k, C); None without ``--relative-attention``.
            global_relative_positions: P_g, (2k_g, C); None without coarse positions.
            shard: the part, with its masks; None for whole sequences.

        Returns:
            (T, B, C).
        """
        score_terms = ()
        if self.relative_projections is not None:
            score_terms = (self.relative_projections(relative_positions, global_relative_positions),)
        if shard is not None:
            seed = dropout_seed()
            return shard.attend(
                self.self_attn,
                x,
                score_terms,
                before=self.self_attn_layer_norm if self.normalize_before else None,
                after=lambda chunk, *x: self._feed_forward(*x, DropoutAt(seed, chunk.start)),
            )
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x = self.self_attn(x, global_mask=global_mask, key_padding_mask=encoder_padding_mask, score_terms=score_terms)
        return self._feed_forward(x, residual)

    def _feed_forward(self, x: Tensor, residual: Tensor, at: DropoutAt | None = None) -> Tensor:
        """What follows the attention.

        Args:
            x: (T, B, C) the attention's output.
            residual: its input.
            at: decides dropout in a part of a document.
        """
        x = self.residual_connection(self._dropped(self.dropout_module, x, at, ATTENDED), residual)
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.fc1(x)
        if self.activation_dropout_module.p:
            x = self.fc2(self._dropped(self.activation_dropout_module, self.activation_fn(x), at, ACTIVATED))
        else:
            x = activated_linear(x, self.activation_fn, self.fc2)
        x = self._dropped(self.dropout_module, x, at, FED)
        x = self.residual_connection(x, residual)
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x

    @staticmethod
    def _dropped(dropout: nn.Module, x: Tensor, at: DropoutAt | None, lane: int) -> Tensor:
        return dropout(x) if at is None else token_dropout(dropout, x, replace(at, lane=lane))


def wrapped(layer: nn.Module, cfg) -> nn.Module:
    """Wrap a layer as fairseq wraps its own: for ``--checkpoint-activations``, and for FSDP, whatever its size then."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class PoolingformerEncoder(TransformerEncoderBase):
    """fairseq's transformer encoder with Poolingformer's layers and a mask of global tokens.

    The first ``--global-tokens`` tokens of each row are global unless the caller passes a mask. With
    ``--relative-attention`` the encoder has the relative positions that all layers share. With a ``division``, this
    process computes its part of each batch (:func:`~.division.divide`).
    """

    division: Division | None = None

    def __init__(self, cfg, dictionary, embed_tokens) -> None:
        self._layers_built = 0
        super().__init__(cfg, dictionary, embed_tokens)
        self.dropout_module = SeededDropout(cfg.dropout, module_name=type(self).__name__)
        settings = TwoLevelFlags.of(cfg)
        if isinstance(self.embed_positions, LearnedPositionalEmbedding):
            self.embed_positions = LearnedPositions(self.embed_positions, settings.random_position_offsets)
        else:
            check_offsets(settings)
        self.global_tokens = settings.global_tokens
        # where no window has a limit, P has a row for every pair, also for pairs with a global token
        self.windows_limited = any(window != UNLIMITED for window in settings.windows(cfg.encoder.layers))
        for remark in settings.remarks(cfg.encoder.layers):
            logger.warning(remark)
        tables = relative_tables(settings, cfg.encoder.embed_dim, cfg.max_source_positions)
        self.relative_positions, self.global_relative_positions = tables

    def build_encoder_layer(self, cfg) -> nn.Module:
        layer = PoolingformerEncoderLayer(cfg, self._layers_built)
        self._layers_built += 1
        return wrapped(layer, cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        global_mask: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode. With a division, the results are of this rank's columns, of padding where there are too few.

        Args:
            src_tokens: (B, T) indices, padded on either side.
            src_lengths: unused; lengths follow from the padding.
            return_all_hiddens: also return every layer's output.
            token_embeddings: (B, T, C) in place of the embedding table's.
            global_mask: (B, T) bool, True at global tokens; None for the first ``--global-tokens``.

        Returns:
            fairseq's encoder output: ``encoder_out`` [(T, B, C)], ``encoder_padding_mask`` [(B, T)], and the rest; with
            a division also ``shard`` [Shard].
        """
        if self.division is not None:
            src_tokens = self.division.widened(src_tokens, self.padding_idx)
            token_embeddings, global_mask = map(self.division.widened, (token_embeddings, global_mask))
        padding_mask = src_tokens.eq(self.padding_idx)
        self._check_length(padding_mask)
        if global_mask is None:
            global_mask = self.first_tokens(padding_mask)
        lengths = (~padding_mask).sum(1, dtype=torch.int32, keepdim=True)
        # plain arguments, because a checkpointed layer passes no gradient to tensors inside another object
        arguments = self._relative_tables(global_mask)
        if self.division is None:
            shard = None
            x, embedding = self.forward_embedding(src_tokens, token_embeddings)
            arguments |= {"global_mask": GlobalTokens.of(global_mask)}  # the mask is read once, not in each layer
            if padding_mask.any():
                x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
                arguments |= {"encoder_padding_mask": padding_mask}
            x = x.transpose(0, 1)
        else:
            shard, embedding = self.division.shard(padding_mask, global_mask), None
            if shard.place_of_chunks is not None:
                shard.place.check(self._size_of_arrays(padding_mask.numel()))
            x = self._embed_part(src_tokens, token_embeddings, padding_mask, shard)
            padding_mask = padding_mask[:, shard.part.start : shard.part.stop]
            arguments |= {"shard": shard}

        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, **arguments)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x) if shard is None else shard.each_chunk(self.layer_norm, x, dim=0)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding_mask],
            "encoder_embedding": [] if embedding is None else [embedding],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths],
            **({} if shard is None else {"shard": [shard]}),
        }

    def _size_of_arrays(self, num_tokens: int) -> int:
        """About how many bytes the arrays of all tokens take in chunks, at the most at a time."""
        arrays = 2.5  # a layer's input, Y, and pooled keys and values, half as many
        if torch.is_grad_enabled():
            recomputed = any(hasattr(layer, "precheckpoint_forward") for layer in self.layers)
            arrays = 1.5 * arrays + len(self.layers) * (1 if recomputed else arrays)
        return int(arrays * num_tokens) * self.embed_tokens.embedding_dim * self.embed_tokens.weight.element_size()

    def _embed_part(
        self, src_tokens: Tensor, token_embeddings: Tensor | None, padding_mask: Tensor, shard: Any
    ) -> Tensor:
        """:meth:`forward_embedding` of a part of whole documents, (T, B, C), with zeros at padding."""
        seed, learned, others = dropout_seed(), None, None
        if isinstance(self.embed_positions, LearnedPositions):
            learned = self.embed_positions.of_parts(src_tokens, shard.table)
        elif self.embed_positions is not None:
            others = self.embed_positions(src_tokens)

        def embed(chunk: range) -> Tensor:
            columns = slice(chunk.start, chunk.stop)
            x = self.embed_tokens(src_tokens[:, columns]) if token_embeddings is None else token_embeddings[:, columns]
            x = self.embed_scale * x
            if self.embed_positions is not None:
                x = x + (others[:, columns] if learned is None else learned(chunk))
            if self.layernorm_embedding is not None:
                x = self.layernorm_embedding(x)
            x = token_dropout(self.dropout_module, x.transpose(0, 1), DropoutAt(seed, chunk.start))
            return x.masked_fill(padding_mask[:, columns].t().unsqueeze(-1), 0.0)

        return shard.by_chunk(embed, dim=0)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Return the source as it is: :class:`~.decoder.CrossAttention` keeps and reorders its own projections.

        fairseq's method copies the whole source at every step of a search with one beam.
        """
        return encoder_out

    def _check_length(self, padding_mask: Tensor) -> None:
        """Refuse rows longer than ``max_positions``, where a table of positions does not refuse them."""
        longest = self.max_positions()
        if (self.embed_positions is not None and self.division is None) or padding_mask.size(1) <= longest:
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

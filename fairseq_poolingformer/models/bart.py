"""Poolingformer-BART and LED: BART with long-document attention in the encoder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.models import register_model
from fairseq.models.bart import BARTModel
from fairseq.models.bart.model import bart_base_architecture, bart_large_architecture
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from fairseq_poolingformer.models.compiled import add_flag
from fairseq_poolingformer.models.decoder import PoolingformerDecoder
from fairseq_poolingformer.models.encoder import PoolingformerEncoder
from fairseq_poolingformer.models.hub import PoolingformerHubInterface
from fairseq_poolingformer.models.pretrained import Architecture, LoadsCheckpoints, as_namespace, register_architectures
from fairseq_poolingformer.settings import PAPER_LAYERS, TwoLevelFlags


@register_model("poolingformer_bart")
class PoolingformerBART(LoadsCheckpoints, BARTModel):
    """BART with two-level attention in the encoder (ICML §3.2, thesis §3.1); its decoder is BART's.

    With ``--pooled-layers none`` and ``--separate-global-projections`` it is LED. ``--restore-file`` takes fairseq's
    ``bart.base`` and ``bart.large`` as they are: see :func:`~.weights.loading.adapt_state_dict`.
    """

    dictionary_file = "dict.source.txt"

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add BART's flags and those of the two levels."""
        BARTModel.add_args(parser)
        TwoLevelFlags.add_args(parser)
        add_flag(parser)
        parser.add_argument(
            "--scale-embedding",
            action="store_false",
            dest="no_scale_embedding",
            default=argparse.SUPPRESS,
            help="multiply embeddings by the square root of their width (Hugging Face's scale_embedding)",
        )

    @classmethod
    def hub_interface(cls, loaded: Mapping[str, Any], data_folder: Path) -> PoolingformerHubInterface:
        return PoolingformerHubInterface(loaded["args"], loaded["task"], loaded["models"][0])

    @classmethod
    def build_model(cls, args, task) -> PoolingformerBART:
        """Build the model from flags, or from a configuration of hydra's."""
        return super().build_model(as_namespace(cls, args), task)

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens) -> PoolingformerEncoder:
        return PoolingformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens) -> PoolingformerDecoder:
        return PoolingformerDecoder(
            TransformerConfig.from_namespace(args),
            tgt_dict,
            embed_tokens,
            no_encoder_attn=getattr(args, "no_cross_attention", False),
        )

    def set_beam_size(self, beam: int) -> None:
        """Do nothing: the encoder sees the number of beams, and fairseq's method would replace its reordering."""

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        *,
        return_all_hiddens: bool = False,
        global_mask: Tensor | None = None,
        features_only: bool = False,
        **named: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """(B, T, V) logits of ``prev_output_tokens`` (B, T), or (B, T, C) features; and fairseq's extra outputs."""
        # ``src_tokens`` (B, S); ``global_mask`` (B, S) bool, True at global tokens, None for the first --global-tokens
        hiddens = {"src_lengths": src_lengths, "return_all_hiddens": return_all_hiddens}
        named |= {"features_only": features_only}
        if global_mask is None:
            return super().forward(src_tokens, prev_output_tokens=prev_output_tokens, **hiddens, **named)
        encoded = self.encoder(src_tokens, global_mask=global_mask, **hiddens)
        return self.decoder(prev_output_tokens, encoder_out=encoded, **hiddens, **named)


_COMMON = {"max_source_positions": 4096}
_TINY = _COMMON | {  # for tests and first steps
    "encoder_embed_dim": 64,
    "encoder_ffn_embed_dim": 256,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "pooled_layers": "1",
}
_LED = {  # Longformer §7: one level, and the global tokens have their own projections
    "window_size": "512",
    "separate_global_projections": True,
    "pooled_layers": "none",
}

# pooled_layers counts the encoder's layers from 0
ARCHITECTURES: dict[str, Architecture] = {
    "poolingformer_bart_large": (bart_large_architecture, _COMMON | {"pooled_layers": PAPER_LAYERS["bart_large"]}),
    "poolingformer_bart_base": (bart_base_architecture, _COMMON | {"pooled_layers": PAPER_LAYERS["bart_base"]}),
    "poolingformer_bart_tiny": (bart_large_architecture, _TINY),
    "poolingformer_demo": (  # the small model of the quickstart
        bart_large_architecture,
        _COMMON
        | {
            "encoder_embed_dim": 192,
            "encoder_ffn_embed_dim": 768,
            "encoder_layers": 4,
            "encoder_attention_heads": 3,
            "decoder_layers": 2,
            "decoder_attention_heads": 3,
            "encoder_normalize_before": True,
            "decoder_normalize_before": True,
            "max_target_positions": 256,
            "dropout": 0.0,
            "window_size": "4,16,32,32",
            "pooled_window_size": "256",
            "pooled_layers": "2-3",
        },
    ),
    "led_bart_large": (bart_large_architecture, _COMMON | _LED),
    "led_bart_base": (bart_base_architecture, _COMMON | _LED),
    "led_bart_tiny": (bart_large_architecture, _TINY | _LED),
}
register_architectures("poolingformer_bart", ARCHITECTURES)

"""Poolingformer-BART and LED: BART with long-document attention in the encoder."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.bart import BARTModel
from fairseq.models.bart.model import bart_base_architecture, bart_large_architecture
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from fairseq_poolingformer.models.hub import PoolingformerHubInterface, load
from fairseq_poolingformer.models.loading import adapt_state_dict
from fairseq_poolingformer.modules.attention_flags import AttentionFlags, set_defaults
from fairseq_poolingformer.modules.decoder import PoolingformerDecoder
from fairseq_poolingformer.modules.encoder import PoolingformerEncoder


@register_model("poolingformer_bart")
class PoolingformerBART(BARTModel):
    """BART with two-level attention in the encoder (ICML §3.2, thesis §3.1); its decoder is BART's.

    Level two off (``--pooled-layers none``) and ``--separate-global-projections`` on, it is LED. ``--restore-file``
    takes fairseq's ``bart.base`` and ``bart.large`` as they are: see :func:`~.loading.adapt_state_dict`.
    """

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add BART's flags and those of the two levels."""
        BARTModel.add_args(parser)
        AttentionFlags.add_args(parser)
        parser.add_argument(
            "--scale-embedding",
            action="store_false",
            dest="no_scale_embedding",
            default=argparse.SUPPRESS,
            help="multiply embeddings by the square root of their width (Hugging Face's scale_embedding)",
        )

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        return {}

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

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        features_only: bool = False,
        classification_head_name: str | None = None,
        token_embeddings: Tensor | None = None,
        return_all_hiddens: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """BART's forward pass, but every layer's output is kept only when asked for.

        Args:
            src_tokens: (B, S) source indices.
            src_lengths: unused.
            prev_output_tokens: (B, T) target indices shifted right.

        Returns:
            (B, T, V) logits, or (B, T, C) features with ``features_only``, and fairseq's extra outputs.
        """
        return super().forward(
            src_tokens,
            src_lengths,
            prev_output_tokens,
            features_only,
            classification_head_name,
            token_embeddings,
            return_all_hiddens,
            alignment_layer,
            alignment_heads,
        )

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Adapt the parameters of BART and of older checkpoints."""
        super().upgrade_state_dict_named(state_dict, name)
        if name == "":
            pooled_init = AttentionFlags.of(self.args).pooled_init
            adapt_state_dict(self, state_dict, offset=self.encoder.padding_idx + 1, pooled_init=pooled_init)

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **kwargs: Any,
    ) -> PoolingformerHubInterface:
        """Load a model for use in Python.

        Args:
            model_name_or_path: folder of the checkpoint.
            checkpoint_file: its name in there.
            data_name_or_path: data folder with the dictionary and tokenizer; a path that begins with a dot starts in
                the model's folder.
            kwargs: overrides of the checkpoint's settings.
        """
        loaded, _ = load(model_name_or_path, checkpoint_file, data_name_or_path, "dict.source.txt", **kwargs)
        return PoolingformerHubInterface(loaded["args"], loaded["task"], loaded["models"][0])


def _architecture(args: argparse.Namespace, pooled_layers: str) -> None:
    """Set the defaults of every architecture: the papers' settings and 4,096 tokens."""
    set_defaults(args, max_source_positions=4096, pooled_layers=pooled_layers)
    flags = AttentionFlags.of(args)
    set_defaults(args, **vars(flags))


@register_model_architecture("poolingformer_bart", "poolingformer_bart_large")
def poolingformer_bart_large(args: argparse.Namespace) -> None:
    """12 + 12 layers, d 1024, 16 heads; level two in encoder layers 6–11."""
    _architecture(args, pooled_layers="6-11")
    bart_large_architecture(args)


@register_model_architecture("poolingformer_bart", "poolingformer_bart_base")
def poolingformer_bart_base(args: argparse.Namespace) -> None:
    """6 + 6 layers, d 768, 12 heads; level two in encoder layers 3–5."""
    _architecture(args, pooled_layers="3-5")
    bart_base_architecture(args)


@register_model_architecture("poolingformer_bart", "poolingformer_bart_tiny")
def poolingformer_bart_tiny(args: argparse.Namespace) -> None:
    """2 + 2 layers, d 64, 4 heads; level two in encoder layer 1. For tests and first steps."""
    set_defaults(
        args,
        encoder_embed_dim=64,
        encoder_ffn_embed_dim=256,
        encoder_layers=2,
        encoder_attention_heads=4,
        decoder_layers=2,
        decoder_attention_heads=4,
    )
    _architecture(args, pooled_layers="1")
    bart_large_architecture(args)


@register_model_architecture("poolingformer_bart", "poolingformer_reader")
def poolingformer_reader(args: argparse.Namespace) -> None:
    """3 + 2 layers, d 128, 2 heads, no dropout; level two in encoder layer 2. The small model of the quickstart."""
    set_defaults(
        args,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=512,
        encoder_layers=3,
        encoder_attention_heads=2,
        decoder_layers=2,
        decoder_attention_heads=2,
        encoder_normalize_before=True,
        decoder_normalize_before=True,
        max_target_positions=128,
        dropout=0.0,
        window_size="4,16,32",
        pooled_window_size="256",
    )
    _architecture(args, pooled_layers="2")
    bart_large_architecture(args)


def _led(args: argparse.Namespace) -> None:
    """Longformer-Encoder-Decoder: one level, one-sided window 512, global projections of their own (Longformer §7)."""
    set_defaults(args, window_size="512", separate_global_projections=True)
    _architecture(args, pooled_layers="none")


@register_model_architecture("poolingformer_bart", "led_bart_large")
def led_bart_large(args: argparse.Namespace) -> None:
    """LED-large."""
    _led(args)
    bart_large_architecture(args)


@register_model_architecture("poolingformer_bart", "led_bart_base")
def led_bart_base(args: argparse.Namespace) -> None:
    """LED-base."""
    _led(args)
    bart_base_architecture(args)

"""Character language models: Transformer, Transformer-XL, Longformer's, adaptive span, GAA: settings of one model."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model, register_model_architecture
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.modules.attention_flags import set_defaults
from fairseq_poolingformer.modules.causal_decoder import CausalDecoder, Memory


@register_model("char_lm")
class CharLanguageModel(FairseqLanguageModel):
    """Causal attention with relative positions; a memory of what came before; spans that are learned.

    ``model(src_tokens, memory=None)`` returns logits and the next segment's memory: see :class:`CausalDecoder`.
    """

    decoder: CausalDecoder

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add the flags; without defaults, which the architectures give."""
        _add_transformer_args(parser)
        _add_attention_args(parser)

    @classmethod
    def build_model(cls, args: Any, task) -> CharLanguageModel:
        """The model with the task's dictionary.

        Raises:
            ValueError: flags are out of range, or do not go together.
        """
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)
        _transformer(args)
        return cls(CausalDecoder(args, task.source_dictionary))

    def forward(self, src_tokens: Tensor, memory: Memory | None = None, **unused: Any) -> tuple[Tensor, dict[str, Any]]:
        """See :meth:`CausalDecoder.forward`."""
        return self.decoder(src_tokens, memory=memory)

    @property
    def memory_length(self) -> int:
        """See :attr:`CausalDecoder.memory_length`."""
        return self.decoder.memory_length

    @property
    def reach(self) -> int | None:
        """See :attr:`CausalDecoder.reach`."""
        return self.decoder.reach

    def set_memory_length(self, positions: int) -> None:
        """See :meth:`CausalDecoder.set_memory_length`."""
        self.decoder.set_memory_length(positions)

    def get_targets(self, sample: dict[str, Any], net_output: tuple) -> Tensor:
        """(B, T) the next characters."""
        return sample["target"]


def _add_transformer_args(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--decoder-layers", type=int, metavar="N", help="layers")
    add("--decoder-embed-dim", type=int, metavar="C", help="width")
    add("--decoder-ffn-embed-dim", type=int, metavar="F", help="width of the feed-forward layers")
    add("--decoder-attention-heads", type=int, metavar="H", help="heads")
    add("--activation-fn", help="of the feed-forward layers: relu, gelu, …")
    add(
        "--gated-ffn",
        action=argparse.BooleanOptionalAction,
        help="GAA's FFN_GLU: a gate of the same width beside the activation, half as many parameters again",
    )
    add("--decoder-normalize-before", action=argparse.BooleanOptionalAction, help="layer norm before each sublayer")
    add("--share-decoder-input-output-embed", action="store_true", help="one matrix for input and output")
    add("--dropout", type=float, metavar="P", help="of embeddings and of what each sublayer adds")
    add("--attention-dropout", type=float, metavar="P", help="of attention weights")
    add("--activation-dropout", type=float, metavar="P", help="of the hidden elements of the feed-forward layers")
    add("--checkpoint-activations", action="store_true", help="recompute each layer's activations in the backward")


def _add_attention_args(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--window-size", metavar="W", help="taps to the left, one number or one a layer, separated by commas; or none")
    add("--window-scale", type=int, metavar="N", help="times --window-size: Longformer's windows double every stage")
    add("--dilation", metavar="D", help="positions between a dilated head's taps, one number or one a layer")
    add("--dilated-heads", type=int, metavar="N", help="the last N heads of each layer are dilated")
    add(
        "--relative-positions",
        choices=("sinusoidal", "learned"),
        help="sinusoidal: Transformer-XL's, each layer projects them; learned: a vector a distance for all layers",
    )
    add(
        "--memory-length",
        type=int,
        metavar="M",
        help="positions that every layer keeps of what came before, at most; with --max-span the spans say how many",
    )
    add("--max-span", type=int, metavar="S", help="learn how far each head looks, up to S positions; 0: do not")
    add("--span-ramp", type=int, metavar="R", help="positions over which a head's sight fades behind its span")
    add("--span-loss", type=float, metavar="X", help="times the layers' mean spans, added to the loss in nats")
    add(
        "--shared-span",
        action=argparse.BooleanOptionalAction,
        help="GAA: a share of S that all layers and heads learn together",
    )
    add(
        "--attention-backend",
        choices=tuple(BACKENDS),
        help="implementation of the attention; default: the fastest that can run the call",
    )


def _transformer(args: argparse.Namespace) -> None:
    """What no architecture has said: 12 layers, d 512, 8 heads, everything seen, nothing kept, no spans."""
    set_defaults(
        args,
        decoder_layers=12,
        decoder_embed_dim=512,
        decoder_ffn_embed_dim=2048,
        decoder_attention_heads=8,
        activation_fn="relu",
        gated_ffn=False,
        decoder_normalize_before=False,
        share_decoder_input_output_embed=False,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.1,
        checkpoint_activations=False,
        window_size="none",
        window_scale=1,
        dilation="1",
        dilated_heads=0,
        relative_positions="sinusoidal",
        memory_length=0,
        max_span=0,
        span_ramp=32,
        span_loss=0.0,
        shared_span=False,
    )
    set_defaults(args, attention_backend=getattr(args, "attention_backend", None))


def _tiny(args: argparse.Namespace) -> None:
    """2 layers, d 64, 4 heads: for tests and first steps."""
    set_defaults(
        args, decoder_layers=2, decoder_embed_dim=64, decoder_ffn_embed_dim=256, decoder_attention_heads=4, max_span=64
    )


@register_model_architecture("char_lm", "transformer_lm_full")
def transformer_lm_full(args: argparse.Namespace) -> None:
    """Full attention over the segment: Transformer-XL without its memory, so that nothing else differs."""
    _transformer(args)


@register_model_architecture("char_lm", "transformer_xl_lm")
def transformer_xl_lm(args: argparse.Namespace) -> None:
    """Dai et al. 2019, enwik8, 12 layers: memory 512."""
    set_defaults(args, memory_length=512)
    _transformer(args)


@register_model_architecture("char_lm", "transformer_xl_lm_large")
def transformer_xl_lm_large(args: argparse.Namespace) -> None:
    """Dai et al. 2019, enwik8, 24 layers: d 1024, memory 768."""
    set_defaults(args, decoder_layers=24, decoder_embed_dim=1024, decoder_ffn_embed_dim=3072, memory_length=768)
    set_defaults(args, dropout=0.15, attention_dropout=0.15, activation_dropout=0.15)
    transformer_xl_lm(args)


def _grow(sizes: tuple[int, ...], layers: tuple[int, ...]) -> str:
    """One value a layer: the first in the lowest layers, and so on."""
    return ",".join(str(size) for size, number in zip(sizes, layers, strict=True) for _ in range(number))


def _longformer(args: argparse.Namespace, dilation: str) -> None:
    set_defaults(args, dilated_heads=2, activation_fn="gelu", decoder_normalize_before=True)
    set_defaults(args, dilation=dilation if args.dilated_heads else "1")
    _transformer(args)


@register_model_architecture("char_lm", "longformer_lm_small")
def longformer_lm_small(args: argparse.Namespace) -> None:
    """Longformer §4, small: windows 32 to 512 (stage 1), two heads dilated in the upper six layers."""
    set_defaults(args, window_size=_grow((32, 64, 128, 256, 512), (2, 2, 2, 3, 3)))
    set_defaults(args, dropout=0.2, activation_dropout=0.2)
    _longformer(args, dilation=_grow((1, 2, 3, 4), (6, 2, 2, 2)))


@register_model_architecture("char_lm", "longformer_lm_large")
def longformer_lm_large(args: argparse.Namespace) -> None:
    """Longformer §4, large: 30 layers."""
    set_defaults(args, decoder_layers=30, window_size=_grow((32, 64, 128, 256, 512), (5, 5, 5, 7, 8)))
    set_defaults(args, dropout=0.4, activation_dropout=0.4)
    _longformer(args, dilation=_grow((1, 2, 3, 4), (15, 5, 5, 5)))


@register_model_architecture("char_lm", "adaptive_span_lm")
def adaptive_span_lm(args: argparse.Namespace) -> None:
    """Sukhbaatar et al. 2019, 12 layers: spans up to 8,192, dropout 0.3 of attention and feed-forward layers."""
    set_defaults(args, max_span=8192, span_loss=5e-7, relative_positions="learned")
    set_defaults(args, dropout=0.0, attention_dropout=0.3, activation_dropout=0.3)
    _transformer(args)


@register_model_architecture("char_lm", "adaptive_span_lm_large")
def adaptive_span_lm_large(args: argparse.Namespace) -> None:
    """Sukhbaatar et al. 2019, 24 layers: d 768, dropout 0.4."""
    set_defaults(args, decoder_layers=24, decoder_embed_dim=768, decoder_ffn_embed_dim=4096)
    set_defaults(args, attention_dropout=0.4, activation_dropout=0.4)
    adaptive_span_lm(args)


@register_model_architecture("char_lm", "gaa_lm")
def gaa_lm(args: argparse.Namespace) -> None:
    """GAA (2024) §3.1: adaptive span with a share that all layers learn, and FFN_GLU."""
    set_defaults(args, shared_span=True, gated_ffn=True, activation_fn="gelu")
    adaptive_span_lm(args)


@register_model_architecture("char_lm", "transformer_lm_full_tiny")
def transformer_lm_full_tiny(args: argparse.Namespace) -> None:
    set_defaults(args, max_span=0)
    _tiny(args)
    transformer_lm_full(args)


@register_model_architecture("char_lm", "transformer_xl_lm_tiny")
def transformer_xl_lm_tiny(args: argparse.Namespace) -> None:
    set_defaults(args, max_span=0, memory_length=32)
    _tiny(args)
    transformer_xl_lm(args)


@register_model_architecture("char_lm", "longformer_lm_tiny")
def longformer_lm_tiny(args: argparse.Namespace) -> None:
    set_defaults(args, max_span=0, window_size="8,16", dropout=0.2, activation_dropout=0.2)
    _tiny(args)
    _longformer(args, dilation="1,2")


@register_model_architecture("char_lm", "adaptive_span_lm_tiny")
def adaptive_span_lm_tiny(args: argparse.Namespace) -> None:
    _tiny(args)
    set_defaults(args, span_ramp=8)
    adaptive_span_lm(args)


@register_model_architecture("char_lm", "gaa_lm_tiny")
def gaa_lm_tiny(args: argparse.Namespace) -> None:
    _tiny(args)
    set_defaults(args, span_ramp=8)
    gaa_lm(args)

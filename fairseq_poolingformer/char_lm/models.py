"""Character language models: Transformer, Transformer-XL, Longformer, adaptive span, GAA; settings of one model."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model, register_model_architecture
from torch import Tensor

from fairseq_poolingformer.attention.backends import BACKENDS
from fairseq_poolingformer.char_lm.decoder import CausalDecoder
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.models.pretrained import as_namespace
from fairseq_poolingformer.settings import set_defaults


@register_model("char_lm")
class CharLanguageModel(FairseqLanguageModel):
    """Causal attention with relative positions, memory and learned spans; see :class:`~.decoder.CausalDecoder`."""

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add the flags; the architectures give their defaults."""
        for name, (default, values, text) in FLAGS.items():
            if isinstance(default, bool):
                named = {"action": argparse.BooleanOptionalAction}
            elif isinstance(values, tuple):
                named = {"choices": values}
            else:
                named = {"metavar": values, "type": None if isinstance(default, str) else type(default)}
            parser.add_argument(f"--{name.replace('_', '-')}", help=text, **named)

    @classmethod
    def build_model(cls, args: Any, task) -> CharLanguageModel:
        """Build the model with the task's dictionary."""
        args = as_namespace(cls, args)
        if (args.memory_length or args.max_span) and type(task).__module__.startswith("fairseq."):
            raise UsageError(
                "a model with a memory or with spans needs --task char_lm, which carries the one and counts the "
                f"others' loss; {type(task).__name__} would train another model"
            )
        return cls(CausalDecoder(args, task.source_dictionary))

    def forward(
        self, src_tokens: Tensor, memory: list[Tensor] | None = None, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """See :meth:`.CausalDecoder.forward`."""
        return self.decoder(src_tokens, memory=memory)

    @property
    def memory_length(self) -> int:
        """See :attr:`.CausalDecoder.memory_length`."""
        return self.decoder.memory_length

    @property
    def reach(self) -> int | None:
        """See :attr:`.CausalDecoder.reach`."""
        return self.decoder.reach

    def set_memory_length(self, positions: int) -> None:
        """See :meth:`.CausalDecoder.set_memory_length`."""
        self.decoder.set_memory_length(positions)

    def evaluate_as_transformer_xl(self, *, same_length: bool, farthest: int | None) -> None:
        """See :meth:`.CausalDecoder.evaluate_as_transformer_xl`."""
        self.decoder.evaluate_as_transformer_xl(same_length=same_length, farthest=farthest)

    def get_targets(self, sample: dict[str, Any], net_output: tuple) -> Tensor:
        """(B, T) the next characters."""
        return sample["target"]


# setting -> default; metavar, or the choices; help. A setting that is on or off has a flag for each.
FLAGS: dict[str, tuple[Any, str | tuple[str, ...] | None, str]] = {
    # the Transformer
    "decoder_layers": (12, "N", "number of layers"),
    "decoder_embed_dim": (512, "C", "width of the model"),
    "decoder_ffn_embed_dim": (2048, "F", "width of the feed-forward layers"),
    "decoder_attention_heads": (8, "H", "number of heads"),
    "activation_fn": ("relu", "NAME", "activation of the feed-forward layers: relu, gelu, …"),
    "gated_ffn": (
        False,
        None,
        "GAA's FFN_GLU: a gate of the same width beside the activation, half as many parameters again",
    ),
    "decoder_normalize_before": (False, None, "layer norm before each sublayer"),
    "dropout": (0.1, "P", "dropout of embeddings and of the output of each sublayer"),
    "attention_dropout": (0.0, "P", "dropout of attention weights"),
    "activation_dropout": (0.1, "P", "dropout of the hidden elements of feed-forward layers"),
    "checkpoint_activations": (False, None, "recompute each layer's activations in the backward"),
    # its attention
    "window_size": ("none", "W", "taps to the left, one number or one a layer, separated by commas; or none"),
    "window_scale": (1, "N", "times --window-size: Longformer's windows double every stage"),
    "dilation": ("1", "D", "positions between a dilated head's taps, one number or one a layer"),
    "dilated_heads": (0, "N", "the last N heads of each layer are dilated"),
    "relative_positions": (
        "sinusoidal",
        ("sinusoidal", "learned"),
        "sinusoidal: Transformer-XL's, each layer projects them; learned: a vector a distance for all layers",
    ),
    "share_position_biases": (False, None, "all layers share Transformer-XL's u and v"),
    "position_dropout": (0.0, "P", "dropout of the sinusoids, the same for all layers"),
    "memory_length": (
        0,
        "M",
        "positions before the block that every layer keeps, at most; with --max-span the spans decide instead",
    ),
    "max_span": (0, "S", "learn how far each head looks, up to S positions; 0: do not"),
    "span_ramp": (32, "R", "positions over which a head's sight fades behind its span"),
    "span_loss": (0.0, "X", "times the layers' mean spans, added to the loss in nats"),
    "shared_span": (False, None, "GAA: a share of S that all layers and heads learn together"),
    "attend_to_self": (
        True,
        None,
        "with --max-span: whether a byte sees itself, at distance 0; in the published adaptive span it does not",
    ),
    "empty_memory": (
        "none",
        ("none", "zeros"),
        "with --max-span, before the beginning of a text: no keys, or keys and values of zeros, which take weight",
    ),
    "attention_backend": (
        None,
        tuple(BACKENDS),
        "implementation of the attention; default: the fastest that can run the call",
    ),
    # its embeddings
    "share_decoder_input_output_embed": (False, None, "one matrix for input and output"),
    "output_bias": (False, None, "a bias in the output layer"),
    "scale_embedding": (True, None, "multiply embeddings by √C"),
    "initialization": (
        "fairseq",
        ("transformer_xl", "fairseq", "torch"),
        "initial values: of Transformer-XL's code; of fairseq's Transformer (embeddings N(0, 1/C)); "
        "or torch's own, as in adaptive span's code",
    ),
}
DEFAULTS = {name: default for name, (default, _, _) in FLAGS.items()}


def _repeat(values: tuple[int, ...], layers: tuple[int, ...]) -> str:
    """A value for each layer: the first value for the lowest layers, and so on."""
    return ",".join(str(value) for value, number in zip(values, layers, strict=True) for _ in range(number))


# Dai et al. 2019, enwik8, 12 layers
_TRANSFORMER_XL = {
    "memory_length": 512,
    "share_position_biases": True,
    "position_dropout": 0.1,
    "share_decoder_input_output_embed": True,
    "output_bias": True,
    "initialization": "transformer_xl",
}
# Beltagy et al. 2020 §4: windows of stage 1 from 32 to 512; two heads dilated in the upper half of the layers
_LONGFORMER = {"dilated_heads": 2, "activation_fn": "gelu", "decoder_normalize_before": True}
_LONGFORMER_SMALL = _LONGFORMER | {
    "window_size": _repeat((32, 64, 128, 256, 512), (2, 2, 2, 3, 3)),
    "dilation": _repeat((1, 2, 3, 4), (6, 2, 2, 2)),
    "dropout": 0.2,
    "activation_dropout": 0.2,
}
# Sukhbaatar et al. 2019, enwik8, 12 layers: dropout of attention weights and of feed-forward layers only
_ADAPTIVE_SPAN = {
    "max_span": 8192,
    "span_loss": 5e-7,
    "relative_positions": "learned",
    "attend_to_self": False,
    "empty_memory": "zeros",
    "dropout": 0.0,
    "attention_dropout": 0.3,
    "activation_dropout": 0.3,
    "output_bias": True,
    "scale_embedding": False,
    "initialization": "torch",
}
# Zeng et al. 2024 §3.1: adaptive span, a share of the span that all layers learn, and FFN_GLU
_GAA = _ADAPTIVE_SPAN | {"shared_span": True, "gated_ffn": True, "activation_fn": "gelu"}
# for tests and first steps
_TINY = {"decoder_layers": 2, "decoder_embed_dim": 64, "decoder_ffn_embed_dim": 256, "decoder_attention_heads": 4}
_TINY_SPAN = _TINY | {"max_span": 64, "span_ramp": 8}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer_lm_full": _TRANSFORMER_XL | {"memory_length": 0},
    "transformer_xl_lm": _TRANSFORMER_XL,
    "transformer_xl_lm_large": _TRANSFORMER_XL
    | {
        "decoder_layers": 24,
        "decoder_embed_dim": 1024,
        "decoder_ffn_embed_dim": 3072,
        "memory_length": 768,
        "dropout": 0.15,
        "attention_dropout": 0.15,
        "activation_dropout": 0.15,
        "position_dropout": 0.15,
    },
    "longformer_lm_small": _LONGFORMER_SMALL,
    "longformer_lm_large": _LONGFORMER_SMALL
    | {
        "decoder_layers": 30,
        "window_size": _repeat((32, 64, 128, 256, 512), (5, 5, 5, 7, 8)),
        "dilation": _repeat((1, 2, 3, 4), (15, 5, 5, 5)),
        "dropout": 0.4,
        "activation_dropout": 0.4,
    },
    "adaptive_span_lm": _ADAPTIVE_SPAN,
    "adaptive_span_lm_large": _ADAPTIVE_SPAN
    | {
        "decoder_layers": 24,
        "decoder_embed_dim": 768,
        "decoder_ffn_embed_dim": 4096,
        "attention_dropout": 0.4,
        "activation_dropout": 0.4,
    },
    "gaa_lm": _GAA,
    "transformer_lm_full_tiny": _TRANSFORMER_XL | _TINY | {"memory_length": 0},
    "transformer_xl_lm_tiny": _TRANSFORMER_XL | _TINY | {"memory_length": 32},
    "longformer_lm_tiny": _LONGFORMER_SMALL | _TINY | {"window_size": "8,16", "dilation": "1,2"},
    "adaptive_span_lm_tiny": _ADAPTIVE_SPAN | _TINY_SPAN,
    "gaa_lm_tiny": _GAA | _TINY_SPAN,
}


def _set_architecture(settings: dict[str, Any], args: argparse.Namespace) -> None:
    """Give ``args`` the settings of an architecture where the command line has none."""
    if getattr(args, "dilated_heads", None) == 0:
        settings = settings | {"dilation": "1"}
    set_defaults(args, **(DEFAULTS | settings))


for _name, _settings in ARCHITECTURES.items():
    register_model_architecture("char_lm", _name)(partial(_set_architecture, _settings))

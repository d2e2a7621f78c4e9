"""The stack of causal layers of a character language model, and the memory that it carries from block to block."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from fairseq.models import FairseqDecoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.char_lm.adaptive_span import ROUND_TO, AdaptiveSpans
from fairseq_poolingformer.char_lm.layer import CausalAttention, CausalLayer, FeedForward, View, causal_windows
from fairseq_poolingformer.char_lm.relative_positions import LearnedDistances, ProjectedPositions, SinusoidalPositions
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.training.recompute import SeededDropout

Memory = list[Tensor]


class CausalDecoder(FairseqDecoder):
    """Embedding, causal layers, output projection.

    The memory is a list of one tensor a layer: the layer's inputs (B, M, C) at the last M positions before the block.
    While gradients are off it holds their keys and values instead, (B, M, 2C), so that a next character costs no
    projection of the characters before it. Either kind can be handed in at any time.
    """

    def __init__(self, args: Any, dictionary) -> None:
        super().__init__(dictionary)
        _check(args)
        layers, heads, channels = args.decoder_layers, args.decoder_attention_heads, args.decoder_embed_dim
        self.checkpoint_activations = args.checkpoint_activations
        self.windows = causal_windows(
            args.window_size, args.dilation, args.dilated_heads, layers, heads, scale=args.window_scale
        )
        self.reaches = [
            None if window.left == UNLIMITED else window.left * max(window.head_dilations(heads))
            for window in self.windows
        ]
        self.longest_memory, self.span_loss = args.memory_length, args.span_loss
        self.zero_keys, self.nearest = args.empty_memory == "zeros", 0 if args.attend_to_self else 1
        self.spans = None
        if args.max_span:
            self.spans = AdaptiveSpans(
                layers, heads, max_span=args.max_span, ramp=args.span_ramp, shared=args.shared_span
            )
        if args.relative_positions == "learned":
            self.positions = LearnedDistances(args.max_span, channels // heads, self.nearest)
        else:
            self.positions = SinusoidalPositions(channels, args.position_dropout)
        self.embed_tokens = nn.Embedding(len(dictionary), channels, padding_idx=dictionary.pad())
        self.embed_scale = channels**0.5 if args.scale_embedding else 1.0
        self.dropout = SeededDropout(args.dropout, module_name=type(self).__name__)
        self.layers = nn.ModuleList(self._build_layer(args) for _ in range(layers))
        if args.share_position_biases:
            first = self.layers[0].positions
            for layer in self.layers[1:]:
                layer.positions.content_bias, layer.positions.position_bias = first.content_bias, first.position_bias
        self.layer_norm = nn.LayerNorm(channels) if args.decoder_normalize_before else None
        self.output_projection = nn.Linear(channels, len(dictionary), bias=args.output_bias)
        if args.share_decoder_input_output_embed:
            self.output_projection.weight = self.embed_tokens.weight
        INITIALIZATIONS[args.initialization](self)

    def _build_layer(self, args: Any) -> CausalLayer:
        channels, heads = args.decoder_embed_dim, args.decoder_attention_heads
        return CausalLayer(
            CausalAttention(channels, heads, dropout=args.attention_dropout, backend=args.attention_backend),
            FeedForward(
                channels,
                args.decoder_ffn_embed_dim,
                activation=args.activation_fn,
                gated=args.gated_ffn,
                dropout=args.activation_dropout,
            ),
            embed_dim=channels,
            pre_norm=args.decoder_normalize_before,
            dropout=args.dropout,
            positions=ProjectedPositions(channels, heads) if args.relative_positions == "sinusoidal" else None,
        )

    @property
    def memory_length(self) -> int:
        """Positions of the longest memory that is kept, with spans as wide as they can be; 0 for a model without."""
        if self.spans is not None:
            return self.spans.max_span
        return self.longest_memory if self.reach is None else min(self.longest_memory, self.reach)

    @property
    def reach(self) -> int | None:
        """The farthest position back that a layer sees, with spans as wide as they can be; None for all of them."""
        if self.spans is not None:
            return self.spans.max_span
        return None if None in self.reaches else max(self.reaches)

    def set_memory_length(self, positions: int) -> None:
        """Keep so many positions from now on, where windows reach as far."""
        if self.spans is not None:
            raise ValueError("--memory-length: the model's spans, which it has learned, say how long its memory is")
        if positions < 0:
            raise ValueError(f"--memory-length must be 0 or more, got {positions}")
        self.longest_memory = positions

    def evaluate_as_transformer_xl(self, *, same_length: bool, farthest: int | None) -> None:
        """See as many bytes as the memory has; distances beyond ``farthest`` count as that (Transformer-XL)."""
        if self.spans is not None or None not in self.reaches:
            raise ValueError("--same-length and --clamp-distances are for models like Transformer-XL, without windows")
        if same_length:
            if self.longest_memory < 2:
                raise ValueError(f"--same-length needs a --memory-length of 2 or more, got {self.longest_memory}")
            left = self.longest_memory - 1
            self.windows, self.reaches = [Window(left, 0)] * len(self.layers), [left] * len(self.layers)
        if farthest is not None:
            if farthest < 1:
                raise ValueError(f"--clamp-distances must be 1 or more, got {farthest}")
            for module in (self.positions, *(layer.positions for layer in self.layers)):
                module.farthest = farthest

    def _views(self) -> list[View]:
        """The view of every layer, with the spans as they are now."""
        common = {"keep_projected": not torch.is_grad_enabled(), "zero_keys": self.zero_keys}
        if self.spans is None:
            longest = self.longest_memory
            return [
                View(window, reach=reach, keep=longest if reach is None else min(longest, reach), **common)
                for window, reach in zip(self.windows, self.reaches, strict=True)
            ]
        spans = self.spans()
        common |= {"ramp": self.spans.ramp, "nearest": self.nearest}
        # as the published code: more than is seen now, because the next update may widen a span
        more = ROUND_TO if torch.is_grad_enabled() else 0
        return [
            View(Window(reach, 0), reach=reach, span=span, keep=min(reach + more, self.spans.max_span), **common)
            for span, reach in zip(spans, self.spans.reaches(spans), strict=True)
        ]

    def forward(self, src_tokens: Tensor, memory: Memory | None = None, **unused: Any) -> tuple[Tensor, dict[str, Any]]:
        """(B, T, V) logits of the characters after ``src_tokens`` (B, T), and ``memory`` for the next block's call.

        Padding is only after the end of a text. A model with adaptive spans also returns ``spans`` (layers, H) and
        ``average_span``, both in positions and without gradient, and ``span_loss``, to be added to the mean loss of a
        character in nats.
        """
        features, extra = self.extract_features(src_tokens, memory)
        return self.output_layer(features), extra

    def extract_features(
        self, src_tokens: Tensor, memory: Memory | None = None, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """(B, T, C) features; arguments and the rest as :meth:`forward`."""
        if memory is not None and len(memory) != len(self.layers):
            raise ValueError(f"memory has {len(memory)} tensors for {len(self.layers)} layers; it is another model's")
        views = self._views()
        x = self.dropout(self.embed_scale * self.embed_tokens(src_tokens.t()))
        pasts = [
            None if memory is None else _last(memory[number].transpose(0, 1), view.reach)
            for number, view in enumerate(views)
        ]
        positions = self._positions(x, pasts, views)
        next_memory = []
        for layer, past, view in zip(self.layers, pasts, views, strict=True):
            if self.checkpoint_activations and torch.is_grad_enabled():
                x, kept_memory = checkpoint(layer, x, past, positions, view, use_reentrant=False)
            else:
                x, kept_memory = layer(x, past, positions, view)
            next_memory.append(kept_memory)
        x = x if self.layer_norm is None else self.layer_norm(x)
        remembers = all(kept_memory is not None for kept_memory in next_memory)
        extra = {"memory": [kept_memory.transpose(0, 1) for kept_memory in next_memory] if remembers else None}
        if self.spans is not None:
            spans = torch.stack([view.span for view in views])
            extra |= {"spans": spans.detach(), "average_span": spans.detach().mean()}
            extra["span_loss"] = self.span_loss * spans.mean(1).sum()
        return self.dropout(x).transpose(0, 1), extra

    def _positions(self, x: Tensor, pasts: list[Tensor | None], views: list[View]) -> Tensor | None:
        """The positions of all distances that occur in a layer, see :meth:`CausalLayer.forward`."""
        length = len(x)
        lengths = [length if past is None else length + len(past) for past in pasts]
        keys = [view.num_keys(positions, length) for view, positions in zip(views, lengths, strict=True)]
        longest = max(view.num_distances(number) for view, number in zip(views, keys, strict=True))
        if isinstance(self.positions, LearnedDistances):
            return self.positions(longest)
        if self.training or torch.is_grad_enabled():
            return self.positions(longest, like=self.embed_tokens.weight)
        return None

    def output_layer(self, features: Tensor, **unused: Any) -> Tensor:
        """(…, C) features to (…, V) logits."""
        return self.output_projection(features)

    def max_positions(self) -> int:
        """No limit."""
        return sys.maxsize


def _check(args: Any) -> None:
    """ValueError for settings that are out of range or say nothing without another one."""
    for name in ("decoder_layers", "decoder_attention_heads"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more, got {getattr(args, name)}")
    if args.memory_length < 0 or args.span_loss < 0:
        name = "memory_length" if args.memory_length < 0 else "span_loss"
        raise ValueError(f"--{name.replace('_', '-')} must be 0 or more, got {getattr(args, name)}")
    if args.max_span and (args.window_size != "none" or args.memory_length):
        raise ValueError(
            f"--max-span {args.max_span} with --window-size {args.window_size} --memory-length {args.memory_length}: "
            "the spans that are learned are windows and say how long the memory is; give --window-size none "
            "--dilation 1 --memory-length 0, or --max-span 0"
        )
    if not args.max_span:
        for name, is_given in (
            ("--shared-span", args.shared_span),
            (f"--span-loss {args.span_loss}", args.span_loss),
            ("--no-attend-to-self", not args.attend_to_self),
            ("--empty-memory zeros", args.empty_memory == "zeros"),
        ):
            if is_given:
                raise ValueError(f"{name} needs --max-span: there are no spans")
    if args.relative_positions == "learned":
        if not args.max_span:
            raise ValueError("--relative-positions learned has a row for each distance up to --max-span; give both")
        if args.share_position_biases or args.position_dropout:
            name = "--share-position-biases" if args.share_position_biases else "--position-dropout"
            raise ValueError(
                f"{name} is for --relative-positions sinusoidal: learned positions have no u, v or dropout"
            )
    elif args.decoder_embed_dim % 2:
        raise ValueError(
            "--relative-positions sinusoidal has a sine and a cosine of each frequency: --decoder-embed-dim must be "
            f"even, got {args.decoder_embed_dim}"
        )


def _last(x: Tensor, number: int | None) -> Tensor:
    """The last positions of a memory (M, B, …); all of them without a number."""
    return x if number is None else x[max(0, len(x) - number) :]


# initial values, by whose code they follow


def _linear(module: nn.Module) -> None:
    """Weights from N(0, 0.02²), biases 0."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _transformer_xl(decoder: nn.Module) -> None:
    """Dai et al.'s code: N(0, 0.02²) for all matrices, embeddings, u and v; gains of layer norm from N(1, 0.02²)."""
    decoder.apply(_linear)
    nn.init.normal_(decoder.embed_tokens.weight, std=0.02)
    for module in decoder.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.02)
        if isinstance(module, ProjectedPositions):
            nn.init.normal_(module.content_bias, std=0.02)
            nn.init.normal_(module.position_bias, std=0.02)


def _fairseq(decoder: nn.Module) -> None:
    """N(0, 0.02²) for matrices; embeddings from N(0, 1/C), as in fairseq's Transformer; u and v 0."""
    decoder.apply(_linear)
    embedding = decoder.embed_tokens
    nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)


INITIALIZATIONS: dict[str, Callable[[nn.Module], None]] = {
    "transformer_xl": _transformer_xl,
    "fairseq": _fairseq,
    "torch": lambda decoder: None,  # embeddings and learned positions N(0, 1), as adaptive span's code
}

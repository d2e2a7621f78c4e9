"""The flags of the encoder's attention, and the attention that they build for each layer."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from fairseq_poolingformer.attention import BACKENDS, POOL_TYPES, Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.patterns import ALIGNMENTS, UNLIMITED
from fairseq_poolingformer.attention.relative_projections import CoarsePositions, RelativeProjections
from fairseq_poolingformer.settings import layer_numbers, per_layer

POOLED_INIT = ("random", "level-one")
RELATIVE_ATTENTION = ("none", "c2p", "p2c", "c2p,p2c")


@dataclass(frozen=True)
class AttentionFlags:
    """The value of every flag of the two levels; the defaults are the papers' (§3.2, thesis §3.1).

    Windows count the tokens on one side. ``pooled_layers`` are 0-based.
    """

    window_size: str | int = "128"
    pooled_window_size: str | int = "512"
    pooled_layers: str = "6-11"
    pool_kernel_size: int = 5
    pool_stride: int = 4
    pool_type: str = "ldconv"
    pool_alignment: str = "grid"
    ldconv_heads: int = 1
    pool_mix: bool = False
    pool_share_weights: bool = False
    pooled_init: str = "random"
    global_tokens: int = 1
    separate_global_projections: bool = False
    relative_attention: str = "none"
    max_relative_positions: int = 512
    global_relative_positions: int = 64
    attention_backend: str | None = None

    @classmethod
    def of(cls, args: Any) -> AttentionFlags:
        """The flags among the attributes of a Namespace or a model's config; defaults for those it lacks."""
        found = {field.name: getattr(args, field.name, None) for field in fields(cls)}
        return cls(**{name: value for name, value in found.items() if value is not None})

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add the flags to a parser, without defaults: the architectures set them."""
        add = parser.add_argument
        add(
            "--window-size",
            metavar="W",
            help="level one's window: tokens on each side, or all; one value or one a layer, separated by commas "
            "(Hugging Face's attention_window counts both sides: twice this)",
        )
        add(
            "--pooled-window-size",
            metavar="W",
            help="level two's window: tokens on each side, or all; one value or one a layer, separated by commas "
            "(both sides: twice this)",
        )
        add(
            "--pooled-layers",
            metavar="L",
            help="0-based layers with level two, e.g. 6-11 or 0,3,5-7; none for no level two",
        )
        add("--pool-kernel-size", type=int, metavar="K", help="tokens pooled to one key (κ)")
        add("--pool-stride", type=int, metavar="S", help="tokens between neighbouring pooled keys (ξ)")
        add("--pool-type", choices=POOL_TYPES, help="how keys and values are pooled")
        add(
            "--pool-alignment",
            choices=ALIGNMENTS,
            help="grid: pools at multiples of the stride, shared by all queries; query: pools of each query's own, "
            "as eq. 6-7 say literally",
        )
        add("--ldconv-heads", type=int, metavar="H", help="sets of dynamic weights of the ldconv kinds")
        add(
            "--pool-mix", action="store_true", help="level two projects the layer's input instead of level one's output"
        )
        add("--pool-share-weights", action="store_true", help="level two uses level one's projections")
        add(
            "--pooled-init",
            choices=POOLED_INIT,
            help="where a checkpoint has no second level, its projections start from random values, or as copies of "
            "level one's (default: random)",
        )
        add("--global-tokens", type=int, metavar="N", help="the first N tokens of the input are global")
        add(
            "--separate-global-projections",
            action=argparse.BooleanOptionalAction,
            help="global tokens have projections of their own, as in Longformer",
        )
        add(
            "--relative-attention",
            choices=RELATIVE_ATTENTION,
            help="DeBERTa's scores between contents and relative positions, in level one: "
            "content to position (c2p), position to content (p2c), or both",
        )
        add(
            "--max-relative-positions",
            type=int,
            metavar="K",
            help="distances on each side with a relative position of their own (k); no window may reach beyond",
        )
        add(
            "--global-relative-positions",
            type=int,
            metavar="K",
            help="the same to and from global tokens, spread evenly over the longest input (k_g)",
        )
        add(
            "--attention-backend",
            choices=tuple(BACKENDS),
            help="implementation of the attention; default: the fastest that can run the call",
        )

    def build(
        self,
        layer: int,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        dropout: float,
        relative: RelativeProjections | None = None,
    ) -> TwoLevelAttention:
        """The self-attention of one layer, time first as fairseq has it.

        Args:
            layer: its 0-based number.
            num_layers: layers of the encoder.
            embed_dim: C.
            num_heads: H.
            dropout: probability of dropping an attention weight.
            relative: the layer's result of :meth:`build_relative`.

        Raises:
            ValueError: a flag is out of range.
        """
        arguments = self.arguments(layer, num_layers)
        scale = None if relative is None else relative.scale
        return TwoLevelAttention(embed_dim, num_heads, scale=scale, dropout=dropout, batch_first=False, **arguments)

    def arguments(self, layer: int, num_layers: int) -> dict[str, Any]:
        """Arguments of :class:`TwoLevelAttention` that choose the two levels of one layer.

        Args:
            layer, num_layers: as in :meth:`build`.

        Raises:
            ValueError: a setting is out of range.
        """
        if self.separate_global_projections and not self.global_tokens:
            raise ValueError(
                "--separate-global-projections with --global-tokens 0 would never use those projections; "
                "give --global-tokens 1 or more, or --no-separate-global-projections"
            )
        if not isinstance(self.global_tokens, int) or self.global_tokens < 0:  # configurations of transformers have any
            raise ValueError(f"--global-tokens must be 0 or more, got {self.global_tokens!r}")
        if self.pooled_init not in POOLED_INIT:
            raise ValueError(f"--pooled-init must be one of {', '.join(POOLED_INIT)}; got {self.pooled_init!r}")
        windows = per_layer("--window-size", self.window_size, num_layers)
        pooled_windows = per_layer("--pooled-window-size", self.pooled_window_size, num_layers)
        pooled_layers = layer_numbers(self.pooled_layers)
        if pooled_layers and max(pooled_layers) >= num_layers:
            raise ValueError(
                f"--pooled-layers {self.pooled_layers} names layer {max(pooled_layers)}, "
                f"but the encoder has layers 0 to {num_layers - 1}"
            )
        level_two = {}
        if layer in pooled_layers:
            level_two = {
                "pooled_window": Window(pooled_windows[layer]),
                "pooling": Pooling(self.pool_kernel_size, self.pool_stride, self.pool_alignment),
                "pool_type": self.pool_type,
                "ldconv_heads": self.ldconv_heads,
                "mix": self.pool_mix,
                "share_weights": self.pool_share_weights,
            }
        return {
            "window": Window(windows[layer]),
            "separate_global_projections": self.separate_global_projections,
            "backend": self.attention_backend,
            **level_two,
        }

    def build_relative(
        self, layer: int, num_layers: int, embed_dim: int, num_heads: int, dropout: float, max_positions: int
    ) -> RelativeProjections | None:
        """One layer's projections of the relative positions; None without ``relative_attention``.

        Args:
            layer, num_layers, embed_dim, num_heads: as in :meth:`build`.
            dropout: probability of dropping an element of the positions.
            max_positions: tokens of the longest input.

        Raises:
            ValueError: a flag is out of range, or some do not go together.
        """
        if self.relative_attention == "none":
            return None
        window = per_layer("--window-size", self.window_size, num_layers)[layer]
        self._check_relative(window, layer)
        return RelativeProjections(
            embed_dim,
            num_heads,
            products=tuple(self.relative_attention.split(",")),
            reach=None if window == UNLIMITED else window,
            global_bucket=self.global_bucket(max_positions),
            dropout=dropout,
        )

    def build_tables(self, embed_dim: int, max_positions: int) -> tuple[nn.Embedding | None, CoarsePositions | None]:
        """The tables P and P_g that all layers share; None for those that the model does not have.

        Args:
            embed_dim: C.
            max_positions: N, tokens of the longest input.
        """
        fine = coarse = None
        if self.relative_attention != "none":
            fine = nn.Embedding(2 * self.max_relative_positions, embed_dim)
        bucket = self.global_bucket(max_positions)
        if bucket is not None:
            coarse = CoarsePositions(2 * self.global_relative_positions, embed_dim, bucket)
        return fine, coarse

    def global_bucket(self, max_positions: int) -> int | None:
        """Tokens that share a coarse relative position: N/k_g, rounded up (T 2.25); None without such positions.

        Args:
            max_positions: N, tokens of the longest input.
        """
        if self.relative_attention == "none" or not self.global_tokens or not self.global_relative_positions:
            return None
        return -(-max_positions // self.global_relative_positions)

    def without_effect(self) -> list[str]:
        """Flags that were changed but do nothing without ``relative_attention``."""
        if self.relative_attention != "none":
            return []
        own = [f for f in fields(self) if f.name.endswith("relative_positions") and getattr(self, f.name) != f.default]
        return ["--" + field.name.replace("_", "-") for field in own]

    def narrower_second_levels(self, num_layers: int) -> list[int]:
        """The layers whose second level sees fewer tokens than their first, which the paper never has.

        Args:
            num_layers: layers of the encoder.
        """
        windows = per_layer("--window-size", self.window_size, num_layers)
        pooled_windows = per_layer("--pooled-window-size", self.pooled_window_size, num_layers)
        return [n for n in sorted(layer_numbers(self.pooled_layers)) if pooled_windows[n] < windows[n]]

    def _check_relative(self, window: int, layer: int) -> None:
        if self.relative_attention not in RELATIVE_ATTENTION:
            raise ValueError(
                f"--relative-attention must be one of {', '.join(RELATIVE_ATTENTION)}; got {self.relative_attention!r}"
            )
        k, k_g = self.max_relative_positions, self.global_relative_positions
        if k < 1 or k_g < 0:
            raise ValueError(
                "--max-relative-positions must be 1 or more and --global-relative-positions 0 or more, "
                f"got {k} and {k_g}"
            )
        if k < window != UNLIMITED:
            raise ValueError(
                f"--window-size {window} (layer {layer}) reaches beyond --max-relative-positions {k}: give a window of "
                f"at most {k}, more relative positions, or --window-size all, where all distances beyond share one"
            )
        if self.global_tokens and not k_g and window != UNLIMITED:
            raise ValueError(
                "--global-relative-positions 0 leaves global tokens without positions; give some, or --global-tokens 0"
            )
        if self.separate_global_projections:
            raise ValueError(
                "--relative-attention and --separate-global-projections do not go together: global tokens have "
                "relative positions of their own, --global-relative-positions; leave one of them out"
            )


def set_defaults(args: argparse.Namespace, **defaults: Any) -> None:
    """Set the attributes that ``args`` lacks, as fairseq's architectures do."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)

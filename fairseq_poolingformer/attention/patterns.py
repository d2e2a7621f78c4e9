"""Which keys a query sees: the sliding window, the pools, and the band that both reduce to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_poolingformer.choices import ALIGNMENTS, UNLIMITED


def _check_int(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}")


def require_kind(kind: type, optional: bool = False, /, **arguments: object) -> None:
    """Raise ``ValueError`` for arguments that are of another kind; None may stand for optional ones."""
    for name, value in arguments.items():
        if not isinstance(value, kind) and not (optional and value is None):
            raise ValueError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")


@dataclass(frozen=True)
class Window:
    """A sliding window: the tokens that a query sees around itself (eq. 3).

    Query i sees key j when ``-left <= j - i <= right``; with dilation d, when ``j - i`` is one of
    ``-left·d, …, -d, 0, d, …, right·d`` (Longformer §3.1).

    Args:
        left: tokens (taps, with dilation) visible before the query, the query itself not counted.
        right: the same after the query; None means as many as ``left``; 0 is a causal window.
        dilation: distance between taps in tokens, one number or one per head.

    Raises:
        ValueError: an argument is out of range.
    """

    left: int
    right: int | None = None
    dilation: int | tuple[int, ...] = 1

    def __post_init__(self) -> None:
        _check_int("left", self.left, 0)
        if self.right is None:
            object.__setattr__(self, "right", self.left)
        _check_int("right", self.right, 0)
        if isinstance(self.dilation, list):
            object.__setattr__(self, "dilation", tuple(self.dilation))
        for value in self.dilation if isinstance(self.dilation, tuple) else (self.dilation,):
            _check_int("dilation", value, 1)

    @classmethod
    def unlimited(cls, *, causal: bool = False) -> Window:
        """The window of full attention: every key, or with ``causal`` every key up to the query itself."""
        return cls(UNLIMITED, 0 if causal else UNLIMITED)

    def head_dilations(self, num_heads: int) -> tuple[int, ...]:
        """The dilation of every head.

        Raises:
            ValueError: ``dilation`` has one value per head of another number of heads.
        """
        if isinstance(self.dilation, int):
            return (self.dilation,) * num_heads
        if len(self.dilation) != num_heads:
            raise ValueError(
                f"window.dilation has {len(self.dilation)} values for {num_heads} heads; "
                "give one number or one per head"
            )
        return self.dilation


@dataclass(frozen=True)
class Pooling:
    """Pools of ``kernel_size`` tokens, ``stride`` tokens apart, each of which becomes one pooled key (eq. 6–7).

    With ``alignment="grid"`` all queries share the pools: pool j covers tokens ``[j·stride, j·stride + kernel_size)``
    and a query sees it when its centre lies inside the window. With ``alignment="query"``, the literal reading of
    eq. 6–7, each query has pools of its own: they start at the window's left edge and lie inside the window. A pool
    that reaches beyond either end of the sequence is clipped to it, so that no token inside the window is lost there.

    Args:
        kernel_size: κ, tokens in a pool.
        stride: ξ, tokens between the starts of neighbouring pools.
        alignment: ``"grid"`` or ``"query"``.

    Raises:
        ValueError: an argument is out of range.
    """

    kernel_size: int
    stride: int
    alignment: str = "grid"

    def __post_init__(self) -> None:
        _check_int("kernel_size", self.kernel_size, 1)
        _check_int("stride", self.stride, 1)
        if self.alignment not in ALIGNMENTS:
            raise ValueError(f"alignment must be one of {ALIGNMENTS}, got {self.alignment!r}")

    @property
    def key_stride(self) -> int:
        """Tokens between the starts of neighbouring pooled keys: with query alignment every start has a key."""
        return self.stride if self.alignment == "grid" else 1

    @property
    def first_start(self) -> int:
        """The token at which pooled key 0 starts; with query alignment its last token is token 0."""
        return 0 if self.alignment == "grid" else 1 - self.kernel_size

    def num_pools(self, num_tokens: int) -> int:
        """P, the pooled keys of a sequence of ``num_tokens`` tokens."""
        return (num_tokens - self.first_start + self.key_stride - 1) // self.key_stride


@dataclass(frozen=True)
class Band:
    """The normal form of a window over tokens or over pooled keys.

    Key j has the place ``key_stride·j``. The query at token i sees it when the distance ``o = key_stride·j − i``
    satisfies ``lowest <= o <= highest`` and ``(o − lowest) mod step = 0``.
    """

    lowest: int
    highest: int
    step: int = 1
    key_stride: int = 1

    def visible(self, positions: Tensor, keys: Tensor) -> Tensor:
        """Whether each query sees each key.

        Args:
            positions: (T,) integer token positions of the queries.
            keys: (S,) integer indices of the keys.

        Returns:
            (T, S) bool.
        """
        distance = self.key_stride * keys[None, :] - positions[:, None]
        seen = (distance >= self.lowest) & (distance <= self.highest)
        if self.step > 1:
            seen &= (distance - self.lowest) % self.step == 0
        return seen

    def key_range(self, first: int, last: int) -> tuple[int, int]:
        """The half-open range of keys that the queries at ``first`` … ``last`` can see, were the sequence endless.

        Returns:
            ``(start, stop)`` with ``0 <= start <= stop``.
        """
        start = max(0, -(-(first + self.lowest) // self.key_stride))
        return start, max(start, (last + self.highest) // self.key_stride + 1)

    def covers(self, positions: Sequence[int], keys: Sequence[int]) -> bool:
        """True if every query sees every key; of both, only the first and the last one are read."""
        nearest = self.key_stride * keys[0] - positions[-1]
        farthest = self.key_stride * keys[-1] - positions[0]
        return self.step == 1 and self.lowest <= nearest and farthest <= self.highest


def band_of(window: Window, pooling: Pooling | None = None, dilation: int = 1) -> Band:
    """The band of a window over tokens, or over pooled keys.

    Over tokens it is the window itself. On the grid, pool j has its centre at ``c = j·ξ + (κ − 1)/2``, and query i sees
    it when ``-left <= c − i <= right``. With query alignment the pools of query i start at ``i − left + m·ξ`` and end
    no later than ``i + right``; pooled key j is the one whose pool ends at token j, clipped or not.

    Args:
        window: tokens visible on each side.
        pooling: None for keys that are tokens.
        dilation: tokens between taps, for keys that are tokens.
    """
    if pooling is None:
        return Band(-window.left * dilation, window.right * dilation, step=dilation)
    kernel_size, stride = pooling.kernel_size, pooling.stride
    if pooling.alignment == "grid":
        # j·ξ − i >= −left − (κ−1)/2 and <= right − (κ−1)/2, rounded inwards to integers
        lowest, highest = -window.left - (kernel_size - 1) // 2, window.right - kernel_size // 2
        return Band(lowest, highest, key_stride=stride)
    return Band(-window.left + kernel_size - 1, window.right, step=stride)


def visible_pairs(
    window: Window,
    pooling: Pooling | None,
    num_heads: int,
    query_offset: int,
    num_queries: int,
    num_keys: int,
) -> Tensor:
    """Whether query t sees key s through the window, for every head: (H, T, S) bool, dense.

    It is for the reference backend and for looking at patterns; the other backends never build it.
    """
    positions = torch.arange(query_offset, query_offset + num_queries)
    keys = torch.arange(num_keys)
    heads = [band_of(window, pooling, d).visible(positions, keys) for d in window.head_dilations(num_heads)]
    return torch.stack(heads)

"""Which tokens and pools neighbouring queries see, in numbers that count from the document's beginning."""

from __future__ import annotations

from fairseq_poolingformer.attention.patterns import Pooling, Window, band_of


def tokens_seen(window: Window, num_heads: int, queries: range, num_tokens: int) -> range:
    """The tokens that the window shows some neighbouring queries, these included."""
    bands = [band_of(window, dilation=dilation) for dilation in set(window.head_dilations(num_heads))]
    starts, stops = zip(*(band.key_range(queries.start, queries.stop - 1) for band in bands), strict=True)
    return range(min(starts), min(max(stops), num_tokens))


def pools_seen(window: Window, pooling: Pooling, queries: range, among: range) -> range:
    """The pools that the window shows some neighbouring queries; where it shows none ``among`` these, one of these."""
    start, stop = band_of(window, pooling).key_range(queries.start, queries.stop - 1)
    start = min(start, among.stop - 1)
    return range(start, max(start + 1, min(stop, among.stop)))


def pools_of(pooling: Pooling, tokens: range) -> range:
    """The pools that start at these tokens; the first tokens also have those that start before them."""
    return range(*(pooling.num_pools(end) if end else 0 for end in (tokens.start, tokens.stop)))


def tokens_of(pooling: Pooling, pools: range, part: range, num_tokens: int) -> range:
    """The tokens of neighbouring pools, which start in ``part``; its first token where there are no pools."""
    if not pools:
        return range(part.start, part.start + 1)
    start, last = (pooling.first_start + pooling.key_stride * pool for pool in (pools.start, pools.stop - 1))
    return range(max(0, start), min(last + pooling.kernel_size, num_tokens))


def pools_among(pooling: Pooling, tokens: range, pools: range) -> range:
    """The places of ``pools`` among those that :func:`pool_keys` makes of ``tokens``, their own."""
    first = 0 if pooling.alignment == "grid" else pools.start - tokens.start
    return range(first, first + len(pools)) if pools else range(0)


def hull(one: range, other: range) -> range:
    """From the first number of two ranges to the last."""
    return range(min(one.start, other.start), max(one.stop, other.stop))

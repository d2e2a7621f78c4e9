"""The Triton kernels of the forward pass of a query group, and the kernel that combines partial results.

``backward.py`` has the kernels of the backward pass. The following holds for both files.

A program has a block of queries (in ``backward_keys``, of keys) of one head and goes through the blocks of keys
(of queries) inside the band: its work does not depend on the length (FlashAttention-2, Dao 2023, under a band). Where
there would be few programs, ``num_splits`` of them split such a range and leave partial results to :func:`combine`.

Tensors are (B, H, length, D): strides ``b``, ``h`` and ``m`` (queries) or ``n`` (keys), D contiguous. ``key`` and
``value`` have the same strides, and so have ``out``, ``grad_out`` and ``grad_query``, ``lse`` and ``delta``,
``grad_key`` and ``grad_value``. Partial results are (splits, B, H, length, D), contiguous. Global tokens are rows of
the same tensors: a ``…_token`` (B, G) has their indices, HIDDEN in empty slots, and their own results (B, H, G, …) are
contiguous. Global keys are the *extra* lane of the queries, and global queries that of the keys; it has no band.
``positions`` and ``extra_positions`` are the ``terms.Positions`` of the two lanes.
``before`` (B, num_tokens + 1) and ``near_left``, ``near_right`` are :func:`~.tiles.unseen_tokens`'. In one softmax over
tokens and pools the pools are a lane of the queries, too, with a band of its own; by keys they have their own launch.
Optional pointers are None, and code that needs them is then not compiled. Scores and ``lse`` are to base 2, for
``exp2``; ``rescale`` multiplies the weights that dropout keeps; ``seed`` points to one number. Arguments are passed by
place, which takes the host half the time of names: tensors, then the numbers that follow from a call's geometry.
"""

import triton
import triton.language as tl

from fairseq_poolingformer.attention.backends.triton.positions import add_position_products
from fairseq_poolingformer.attention.backends.triton.tiles import (
    ALL,
    BEYOND,
    HIDDEN,
    WITHIN,
    draw_kept,
    keys_of_split,
    load_block,
    load_rows,
    load_tokens,
    mask_edge,
    mask_scores,
    place_of_split,
    places_in_class,
    pools_of_side,
    rows_of,
    store_rows,
)

LOWEST = tl.constexpr(-1.0e38)  # a row's maximum before there is any; finite, for -inf - -inf is NaN

# Triton compiles a kernel again where an integer becomes 1 or a multiple of 16; these change with every length
VARYING = [
    *("num_queries", "num_keys", "num_extra", "num_splits", "lowest", "highest", "key_stride", "farthest", "spacing"),
    *("dropped", "draw", "extra_draw", "first_query_position", "first_key_position"),
    *("num_tokens", "near_left", "near_right", "num_pools", "pool_lowest", "pool_highest", "pool_size"),
    *("stride_lb", "stride_lh", "stride_sb", "stride_wb", "stride_wh"),
]


@triton.jit
def _attend(
    acc, top, total, q, queries, query_position, first_token, last_token,
    key, value, stride_kn, key_hidden, stride_sn, key_token, first, gap, gap_stop, stop, inner_first, inner_stop,
    num_keys, key_stride, scale, table, farthest, before, num_tokens, near_left, near_right, positions, head,
    first_key_position, spacing, seed, dropped, draw, batch_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    MOST_HIDDEN: tl.constexpr, SEEN: tl.constexpr, INSIDE: tl.constexpr, DROPOUT: tl.constexpr, COARSE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add a lane's keys ``first`` … ``gap`` and ``gap_stop`` … ``stop`` to the running softmax of a block of queries.

    INSIDE there is no gap, all keys exist and none is hidden; all queries see ``inner_first`` … ``inner_stop``.
    """
    for place in range(first, stop - (gap_stop - gap), BLOCK_N):
        start = place if INSIDE else tl.where(place < gap, place, place + gap_stop - gap)
        keys = start + tl.arange(0, BLOCK_N)
        rows, count = rows_of(key_token, keys, num_keys)
        position = first_key_position + spacing * key_stride * rows if key_token is None else rows
        token = rows
        if INSIDE:
            k = load_block(key, start, stride_kn, BLOCK_N, HEAD_DIM, BLOCK_D)
        else:
            token = load_tokens(key_hidden, stride_sn, rows, count, key_stride, MOST_HIDDEN)
            if SEEN == BEYOND:
                token = places_in_class(token, first_key_position, spacing)
            rows = tl.where(token < HIDDEN, rows, count)  # padding may be NaN, and 0·NaN is NaN
            k = load_rows(key, rows, count, stride_kn, HEAD_DIM, BLOCK_D)
        product = add_position_products(
            tl.dot(q, tl.trans(k), input_precision=PRECISION), q, k, query_position, position, spacing, positions, head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, COARSE, False, PRECISION,
        )  # fmt: skip
        below = start < inner_first
        edge = below | (start + BLOCK_N > inner_stop)
        if INSIDE and SEEN == WITHIN:
            product = mask_edge(
                product, float("-inf"), edge, below, (keys * key_stride)[None, :], first_token[:, None],
                last_token[:, None], query_position[:, None], key_stride, near_left, near_right, before is not None,
            )  # fmt: skip
        if INSIDE and table is None:  # one multiply-add for each score
            higher = tl.maximum(top, tl.max(product, 1) * scale)
            weights = tl.exp2(product * scale - higher[:, None])
            if before is not None:
                weights = mask_edge(
                    weights, None, edge, below, (keys * key_stride)[None, :], first_token[:, None],
                    last_token[:, None], query_position[:, None], key_stride, near_left, near_right, True,
                )  # fmt: skip
        else:
            scores, unseen = mask_scores(
                product, token[None, :], first_token[:, None], last_token[:, None],
                query_position[:, None], position[None, :], scale, table, farthest,
                before, num_tokens, near_left, near_right, key_stride, SEEN, INSIDE,
            )  # fmt: skip
            higher = tl.maximum(top, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            if before is not None:
                weights *= unseen
        fade = tl.exp2(top - higher)
        top = higher
        total = total * fade + tl.sum(weights, 1)
        if DROPOUT:
            weights = tl.where(draw_kept(seed, dropped, draw, batch_head, queries, start, BLOCK_N), weights, 0.0)
        if INSIDE:
            v = load_block(value, start, stride_kn, BLOCK_N, HEAD_DIM, BLOCK_D)
        else:
            v = load_rows(value, rows, count, stride_kn, HEAD_DIM, BLOCK_D)
        acc = tl.dot(weights.to(v.dtype), v, acc * fade[:, None], input_precision=PRECISION)
    return acc, top, total


@triton.jit(do_not_specialize=VARYING)
def forward(
    query, query_token, key, value, key_hidden, real, extra_key, extra_value, extra_token, pool_key, pool_value,
    out, lse, table, before, seed, positions, extra_positions,
    stride_qb, stride_qh, stride_qm, num_queries, stride_kb, stride_kh, stride_kn, stride_sb, stride_sn, num_keys,
    stride_ob, stride_oh, stride_om, stride_lb, stride_lh, stride_lm, stride_en, num_extra,
    stride_pb, stride_ph, stride_pn, num_pools, pool_lowest, pool_highest, pool_size,
    heads, num_splits, lowest, highest, key_stride, first_query_position, first_key_position, spacing,
    scale, farthest, num_tokens, near_left, near_right, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BANDED: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_EXTRA: tl.constexpr,
    BLOCK_POOLS: tl.constexpr, PARTIAL: tl.constexpr,
):  # fmt: skip
    """Write ``out`` and ``lse``, with PARTIAL over the keys of one split. Grid: (query blocks · B·H, splits)."""
    blocks = tl.cdiv(num_queries, BLOCK_M)
    batch_head, split = tl.program_id(0) // blocks, tl.program_id(1)
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    first_query = tl.program_id(0) % blocks * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    GATHERED: tl.constexpr = query_token is not None
    if DROPOUT:
        seed = tl.load(seed)
    if query_token is not None:
        query_token += batch * num_queries
    rows, count = rows_of(query_token, queries, num_queries)
    q = load_rows(query + batch * stride_qb + head * stride_qh, rows, count, stride_qm, HEAD_DIM, BLOCK_D)
    query_position = first_query_position + spacing * rows
    if table is not None:
        table += head * (2 * farthest + 1)
    if before is not None:
        before += batch * (num_tokens + 1)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top = tl.full([BLOCK_M], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    last_query = tl.minimum(first_query + BLOCK_M, num_queries) - 1
    place = batch * stride_kb + head * stride_kh
    if key_hidden is not None:
        key_hidden += batch * stride_sb
    most_hidden: tl.constexpr = 1 if GATHERED else 0
    first_before = before if pool_key is None else None  # unseen-token counts, if the first lane's keys are pools
    UNMASKED: tl.constexpr = BLOCK_D <= 128 and first_before is None  # a second loop; wider vectors would spill
    first, stop, start, end, inner_first, inner_stop = keys_of_split(
        first_query, last_query, num_keys, lowest, highest, key_stride, split, num_splits, real, batch,
        first_key_position, spacing, scale, key_hidden, stride_sn, most_hidden, BANDED, BLOCK_N, UNMASKED,
    )  # fmt: skip
    for INSIDE in tl.static_range(2 if UNMASKED else 1):
        acc, top, total = _attend(
            acc, top, total, q, queries, query_position, queries + lowest, queries + highest,
            key + place, value + place, stride_kn, key_hidden, stride_sn, None,
            start if INSIDE else first, end if INSIDE else start, end, end if INSIDE else stop, inner_first, inner_stop,
            num_keys, key_stride, scale, table, farthest, first_before, num_tokens, near_left, near_right, positions,
            head, first_key_position, spacing, seed, dropped, draw, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, most_hidden, WITHIN if BANDED else ALL, INSIDE == 1, DROPOUT, GATHERED,
            PRECISION,
        )  # fmt: skip
    if pool_key is not None:
        place_of_pools = batch * stride_pb + head * stride_ph
        whole = tl.log2(pool_size.to(tl.float32))  # the score of a pool of which the window shows no token
        for SIDE in range(2):
            first, stop, start, end, inner_first, inner_stop = pools_of_side(
                SIDE, first_query, last_query, num_pools, pool_lowest, pool_highest, pool_size, before, num_tokens,
                near_left, near_right, scale, BLOCK_POOLS, UNMASKED,
            )  # fmt: skip
            stop, end = tl.where(split == 0, stop, first), tl.where(split == 0, end, start)
            for INSIDE in tl.static_range(2 if UNMASKED else 1):
                acc, top, total = _attend(
                    acc, top - whole if INSIDE else top, total,
                    q, queries, query_position, queries + pool_lowest, queries + pool_highest,
                    pool_key + place_of_pools, pool_value + place_of_pools, stride_pn, None, 0, None,
                    start if INSIDE else first, end if INSIDE else start, end, end if INSIDE else stop, inner_first,
                    inner_stop, num_pools, pool_size, scale, None, 0, before, num_tokens, near_left, near_right,
                    positions, head, 0, 1, seed, dropped, draw + 4, batch_head,
                    HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_POOLS, 0, WITHIN, INSIDE == 1, DROPOUT, False, PRECISION,
                )  # fmt: skip
                top = top + whole if INSIDE else top
    if extra_key is not None:
        stop = tl.where(split == 0, num_extra, 0)
        acc, top, total = _attend(
            acc, top, total, q, queries, query_position, queries + lowest, queries + highest,
            extra_key + place, extra_value + place, stride_en, None, 0, extra_token + batch * num_extra,
            0, 0, 0, stop, 0, 0, num_extra, 1,
            scale, table, farthest, None, 0, 0, 0, extra_positions, head, first_key_position, spacing,
            seed, dropped, draw + 1, batch_head, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_EXTRA, 0,
            BEYOND if extra_positions.num_rows is None else ALL, False, DROPOUT, True, PRECISION,
        )  # fmt: skip

    total = tl.where(total == 0.0, 1.0, total)
    result = acc * (rescale / total)[:, None]
    log_total = top + tl.log2(total)
    if PARTIAL:
        place = place_of_split(split, batch_head, blocks, num_queries)
        store_rows(out + place * HEAD_DIM, result, queries, num_queries, HEAD_DIM, HEAD_DIM, BLOCK_D, False)
        tl.store(lse + place + queries, log_total, mask=queries < num_queries)
    else:
        out += batch * stride_ob + head * stride_oh
        store_rows(out, result, queries, num_queries, stride_om, HEAD_DIM, BLOCK_D, False)
        lse += batch * stride_lb + head * stride_lh
        tl.store(lse + queries.to(tl.int64) * stride_lm, log_total, mask=queries < num_queries)


@triton.jit(do_not_specialize=VARYING)
def combine(
    partial, partial_lse, token, out, second, lse, window_lse,
    num_rows, stride_ob, stride_oh, stride_om, stride_lb, stride_lh, stride_lm, stride_wb, stride_wh, heads, num_splits,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Write, or with ADD add to, ``out``: the sum of its splits, or with ``partial_lse`` their softmax, and ``lse``.

    ``partial`` has the splits of ``out``, then, where there is one, those of ``second``, which is laid out alike.

    With ``token`` the rows go to these tokens, and ``window_lse`` becomes +inf there: the window pass also wrote the
    global queries' rows, and +inf makes their weights zero in its backward pass. Grid: (row blocks · B·H, outputs).
    """
    blocks = tl.cdiv(num_rows, BLOCK)
    batch_head = tl.program_id(0) // blocks
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    slots = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    if second is not None:  # noqa: SIM102 (decided by the compiler)
        if tl.program_id(1) > 0:
            partial += place_of_split(num_splits, 0, blocks, num_rows) * HEAD_DIM
            out = second
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    top = tl.full([BLOCK], LOWEST, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for split in range(0, num_splits):
        place = place_of_split(split, batch_head, blocks, num_rows)
        x = load_rows(partial + place * HEAD_DIM, slots, num_rows, HEAD_DIM, HEAD_DIM, BLOCK_D)
        if partial_lse is not None:
            log_total = tl.load(partial_lse + place + slots, mask=slots < num_rows, other=LOWEST)
            higher = tl.maximum(top, log_total)
            fade, weight = tl.exp2(top - higher), tl.exp2(log_total - higher)
            top = higher
            total = total * fade + weight
            acc = acc * fade[:, None] + x * weight[:, None]
        else:
            acc += x
    if token is not None:
        token += batch * num_rows
    rows, count = rows_of(token, slots, num_rows)
    if partial_lse is not None:
        acc = acc / total[:, None]
        lse += batch * stride_lb + head * stride_lh
        tl.store(lse + slots.to(tl.int64) * stride_lm, top + tl.log2(total), mask=slots < num_rows)
        if window_lse is not None:
            window_lse += batch * stride_wb + head * stride_wh
            tl.store(window_lse + rows, tl.full([BLOCK], float("inf"), tl.float32), mask=rows < count)
    out += batch * stride_ob + head * stride_oh
    store_rows(out, acc, rows, count, stride_om, HEAD_DIM, BLOCK_D, ADD)

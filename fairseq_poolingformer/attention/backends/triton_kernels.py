"""The Triton kernels of a stream of queries and its sources of keys: forward, and backward by queries and by keys.

A program has a block of queries (in :func:`backward_keys`, of keys) of one head and goes through the blocks of keys
(of queries) inside the band: its work does not depend on the length (FlashAttention-2, Dao 2023, under a band). Where
programs would be few, ``num_parts`` of them share such a range and leave partial results for the caller to sum up.

Tensors are (B, H, length, D): strides ``b``, ``h`` and ``m`` (queries) or ``n`` (keys), D contiguous. ``key`` and
``value`` have the same strides; tokens and positions are (B, length), contiguous. The *extra* source is that of the
gathered global keys: contiguous, without a band. Optional pointers are None, and what needs them is not compiled.
Scores and ``lse`` are to base 2, for ``exp2``; ``rescale`` is what the weights that dropout keeps are multiplied by.
"""

import triton
import triton.language as tl

from .triton_tiles import (
    add_term_gradients,
    draw_kept,
    keys_seen,
    load_lse,
    load_positions,
    load_rows,
    load_tokens,
    mask_scores,
    of_head,
    part_of,
    queries_seeing,
    store_rows,
)

LN2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1.0e38)  # a row's maximum before there is any; finite, for -inf - -inf is NaN

# Triton compiles anew where an integer becomes 1 or a multiple of 16; of these, which change with lengths, it must not
VARYING = [
    *("num_queries", "num_keys", "num_extra", "num_parts", "lowest", "highest", "key_stride", "farthest", "spacing"),
    *("seed", "dropped", "draw", "stride_part", "stride_lpart", "stride_lb", "stride_lh", "stride_lm"),
]


@triton.jit
def _attend(
    acc, top, total, q, queries, query_position, first_token, last_token,
    key, value, stride_kn, key_token, key_position, place_k, first, stop, num_keys, key_stride,
    scale, table, farthest, seed, dropped, draw, batch_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Take a source's keys ``first`` … ``stop`` into the softmax of a block of queries."""
    for start in range(first, stop, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(key, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
        token = load_tokens(key_token, place_k, keys, num_keys, key_stride)
        position = load_positions(key_position, place_k, keys, num_keys)
        scores = mask_scores(
            tl.dot(q, tl.trans(k), input_precision="ieee"), token[None, :], first_token[:, None], last_token[:, None],
            query_position[:, None], position[None, :], scale, table, farthest, BANDED,
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        top = higher
        total = total * fade + tl.sum(weights, 1)
        if DROPOUT:
            weights = tl.where(draw_kept(seed, dropped, draw, batch_head, queries, start, BLOCK_N), weights, 0.0)
        v = load_rows(value, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
        acc = tl.dot(weights.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, top, total


@triton.jit(do_not_specialize=VARYING)
def forward(
    query, stride_qb, stride_qh, stride_qm, query_position, num_queries,
    key, value, stride_kb, stride_kh, stride_kn, key_token, key_position, num_keys,
    extra_key, extra_value, extra_token, extra_position, num_extra,
    out, stride_part, stride_ob, stride_oh, stride_om, lse, stride_lpart, stride_lb, stride_lh, stride_lm,
    heads, num_parts, lowest, highest, key_stride, scale, table, farthest, seed, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_EXTRA: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write ``out`` and ``lse``; with several parts, those over each part's keys. Grid: (query blocks · B·H, parts)."""
    blocks = tl.cdiv(num_queries, BLOCK_M)
    batch_head, part = tl.program_id(0) // blocks, tl.program_id(1)
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    first_query = tl.program_id(0) % blocks * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    q = load_rows(query + batch * stride_qb + head * stride_qh, queries, num_queries, stride_qm, HEAD_DIM, BLOCK_D)
    query_position = load_positions(query_position, batch * num_queries, queries, num_queries)
    table = of_head(table, head, farthest)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top = tl.full([BLOCK_M], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    last_query = tl.minimum(first_query + BLOCK_M, num_queries) - 1
    first, stop = keys_seen(first_query, last_query, num_keys, lowest, highest, key_stride, BANDED)
    first, stop = part_of(first, stop, part, num_parts, BLOCK_N)
    place = batch * stride_kb + head * stride_kh
    acc, top, total = _attend(
        acc, top, total, q, queries, query_position, queries + lowest, queries + highest,
        key + place, value + place, stride_kn, key_token, key_position, batch * num_keys,
        first, stop, num_keys, key_stride, scale, table, farthest, seed, dropped, draw, batch_head,
        HEAD_DIM, BLOCK_D, BLOCK_N, BANDED, DROPOUT,
    )  # fmt: skip
    if extra_key is not None:
        place = batch_head.to(tl.int64) * num_extra * HEAD_DIM
        stop = tl.where(part == 0, num_extra, 0)
        acc, top, total = _attend(
            acc, top, total, q, queries, query_position, queries, queries,
            extra_key + place, extra_value + place, HEAD_DIM, extra_token, extra_position, batch * num_extra,
            0, stop, num_extra, 1, scale, table, farthest, seed, dropped, draw + 1, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_EXTRA, False, DROPOUT,
        )  # fmt: skip

    blind = total == 0.0
    total = tl.where(blind, 1.0, total)
    out += part * stride_part + batch * stride_ob + head * stride_oh
    store_rows(out, acc * (rescale / total)[:, None], queries, num_queries, stride_om, HEAD_DIM, BLOCK_D, False)
    lse += part * stride_lpart + batch * stride_lb + head * stride_lh
    log_total = tl.where(blind, float("inf"), top + tl.log2(total))
    tl.store(lse + queries.to(tl.int64) * stride_lm, log_total, mask=queries < num_queries)


@triton.jit
def _query_gradient(
    acc, q, queries, query_position, first_token, last_token, grad_out, lse, delta,
    key, value, stride_kn, key_token, key_position, place_k, first, stop, num_keys, key_stride,
    scale, table, farthest, grad_table, spacing, seed, dropped, rescale, draw, batch_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BANDED: tl.constexpr, DROPOUT: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Add to a block of queries' gradient what comes from a source's keys ``first`` … ``stop``."""
    for start in range(first, stop, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(key, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
        v = load_rows(value, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
        token = load_tokens(key_token, place_k, keys, num_keys, key_stride)
        position = load_positions(key_position, place_k, keys, num_keys)
        scores = mask_scores(
            tl.dot(q, tl.trans(k), input_precision="ieee"), token[None, :], first_token[:, None], last_token[:, None],
            query_position[:, None], position[None, :], scale, table, farthest, BANDED,
        )  # fmt: skip
        weights = tl.exp2(scores - lse[:, None])
        grad_weights = tl.dot(grad_out, tl.trans(v), input_precision="ieee")
        if DROPOUT:
            kept = draw_kept(seed, dropped, draw, batch_head, queries, start, BLOCK_N)
            grad_weights = tl.where(kept, grad_weights * rescale, 0.0)
        grad_scores = weights * (grad_weights - delta[:, None])
        if grad_table is not None:
            add_term_gradients(
                grad_scores, query_position, position, spacing, grad_table, farthest, DIAGONAL, BLOCK_M, BLOCK_N
            )
        acc = tl.dot(grad_scores.to(k.dtype), k, acc, input_precision="ieee")
    return acc


@triton.jit(do_not_specialize=VARYING)
def backward_queries(
    query, stride_qb, stride_qh, stride_qm, query_position, num_queries,
    key, value, stride_kb, stride_kh, stride_kn, key_token, key_position, num_keys,
    extra_key, extra_value, extra_token, extra_position, num_extra,
    out, stride_ob, stride_oh, stride_om, lse, stride_lb, stride_lh, stride_lm,
    grad_out, stride_gb, stride_gh, stride_gm, delta,
    grad_query, stride_part, stride_dqb, stride_dqh, stride_dqm, grad_table, spacing,
    heads, num_parts, lowest, highest, key_stride, scale, table, farthest, seed, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_EXTRA: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Write ``grad_query`` and ``delta``, the rows' sums of out · grad_out (B, H, M); add to ``grad_table``.

    Grid: (query blocks · B·H, parts).
    """
    blocks = tl.cdiv(num_queries, BLOCK_M)
    batch_head, part = tl.program_id(0) // blocks, tl.program_id(1)
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    first_query = tl.program_id(0) % blocks * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    q = load_rows(query + batch * stride_qb + head * stride_qh, queries, num_queries, stride_qm, HEAD_DIM, BLOCK_D)
    do = load_rows(grad_out + batch * stride_gb + head * stride_gh, queries, num_queries, stride_gm, HEAD_DIM, BLOCK_D)
    o = load_rows(out + batch * stride_ob + head * stride_oh, queries, num_queries, stride_om, HEAD_DIM, BLOCK_D)
    row_delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta + batch_head.to(tl.int64) * num_queries + queries, row_delta, mask=queries < num_queries)
    row_lse = load_lse(lse + batch * stride_lb + head * stride_lh, queries, num_queries, stride_lm)
    query_position = load_positions(query_position, batch * num_queries, queries, num_queries)
    table = of_head(table, head, farthest)
    grad_table = of_head(grad_table, head, farthest)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    last_query = tl.minimum(first_query + BLOCK_M, num_queries) - 1
    first, stop = keys_seen(first_query, last_query, num_keys, lowest, highest, key_stride, BANDED)
    first, stop = part_of(first, stop, part, num_parts, BLOCK_N)
    place = batch * stride_kb + head * stride_kh
    acc = _query_gradient(
        acc, q, queries, query_position, queries + lowest, queries + highest, do, row_lse, row_delta,
        key + place, value + place, stride_kn, key_token, key_position, batch * num_keys,
        first, stop, num_keys, key_stride, scale, table, farthest, grad_table, spacing,
        seed, dropped, rescale, draw, batch_head, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, BANDED, DROPOUT, DIAGONAL,
    )  # fmt: skip
    if extra_key is not None:
        place = batch_head.to(tl.int64) * num_extra * HEAD_DIM
        stop = tl.where(part == 0, num_extra, 0)
        acc = _query_gradient(
            acc, q, queries, query_position, queries, queries, do, row_lse, row_delta,
            extra_key + place, extra_value + place, HEAD_DIM, extra_token, extra_position, batch * num_extra,
            0, stop, num_extra, 1, scale, table, farthest, grad_table, 0, seed, dropped, rescale, draw + 1, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_EXTRA, False, DROPOUT, False,
        )  # fmt: skip
    grad_query += part * stride_part + batch * stride_dqb + head * stride_dqh
    store_rows(grad_query, acc * scale * LN2, queries, num_queries, stride_dqm, HEAD_DIM, BLOCK_D, False)


@triton.jit(do_not_specialize=VARYING)
def backward_keys(
    query, stride_qb, stride_qh, stride_qm, query_position, num_queries,
    key, value, stride_kb, stride_kh, stride_kn, key_token, key_position, num_keys,
    grad_out, stride_gb, stride_gh, stride_gm, lse, stride_lb, stride_lh, stride_lm, delta,
    grad_key, grad_value, stride_part, stride_dkb, stride_dkh, stride_dkn,
    heads, num_parts, lowest, highest, key_stride, scale, table, farthest, seed, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BANDED: tl.constexpr, DROPOUT: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Write, or with ADD add to, ``grad_key`` and ``grad_value`` of one source. Grid: (key blocks · B·H, parts).

    Tiles are (keys × queries) here, so that no product needs a transposed tile of weights.
    """
    blocks = tl.cdiv(num_keys, BLOCK_N)
    batch_head, part = tl.program_id(0) // blocks, tl.program_id(1)
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    first_key = tl.program_id(0) % blocks * BLOCK_N
    keys = first_key + tl.arange(0, BLOCK_N)
    place = batch * stride_kb + head * stride_kh
    k = load_rows(key + place, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
    v = load_rows(value + place, keys, num_keys, stride_kn, HEAD_DIM, BLOCK_D)
    token = load_tokens(key_token, batch * num_keys, keys, num_keys, key_stride)
    key_position = load_positions(key_position, batch * num_keys, keys, num_keys)
    table = of_head(table, head, farthest)
    query += batch * stride_qb + head * stride_qh
    grad_out += batch * stride_gb + head * stride_gh
    lse += batch * stride_lb + head * stride_lh
    delta += batch_head.to(tl.int64) * num_queries

    grad_k = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    grad_v = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    last_key = tl.minimum(first_key + BLOCK_N, num_keys) - 1
    first, stop = queries_seeing(first_key, last_key, num_queries, lowest, highest, key_stride, BANDED)
    first, stop = part_of(first, stop, part, num_parts, BLOCK_M)
    for start in range(first, stop, BLOCK_M):
        queries = start + tl.arange(0, BLOCK_M)
        q = load_rows(query, queries, num_queries, stride_qm, HEAD_DIM, BLOCK_D)
        position = load_positions(query_position, batch * num_queries, queries, num_queries)
        scores = mask_scores(
            tl.dot(k, tl.trans(q), input_precision="ieee"),
            token[:, None], (queries + lowest)[None, :], (queries + highest)[None, :],
            position[None, :], key_position[:, None], scale, table, farthest, BANDED,
        )  # fmt: skip
        weights = tl.exp2(scores - load_lse(lse, queries, num_queries, stride_lm)[None, :])
        do = load_rows(grad_out, queries, num_queries, stride_gm, HEAD_DIM, BLOCK_D)
        grad_weights = tl.dot(v, tl.trans(do), input_precision="ieee")
        kept_weights = weights
        if DROPOUT:
            kept = tl.trans(draw_kept(seed, dropped, draw, batch_head, queries, first_key, BLOCK_N))
            kept_weights = tl.where(kept, weights, 0.0)
            grad_weights = tl.where(kept, grad_weights * rescale, 0.0)
        grad_v = tl.dot(kept_weights.to(do.dtype), do, grad_v, input_precision="ieee")
        row_delta = tl.load(delta + queries, mask=queries < num_queries, other=0.0)
        grad_scores = weights * (grad_weights - row_delta[None, :])
        grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision="ieee")
    place = part * stride_part + batch * stride_dkb + head * stride_dkh
    store_rows(grad_key + place, grad_k * scale * LN2, keys, num_keys, stride_dkn, HEAD_DIM, BLOCK_D, ADD)
    store_rows(grad_value + place, grad_v * rescale, keys, num_keys, stride_dkn, HEAD_DIM, BLOCK_D, ADD)

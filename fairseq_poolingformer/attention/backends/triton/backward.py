"""The Triton kernels of the backward pass, by queries and by keys; ``forward.py`` explains their arguments."""

import triton
import triton.language as tl

from fairseq_poolingformer.attention.backends.triton.forward import VARYING
from fairseq_poolingformer.attention.backends.triton.positions import add_position_gradients, add_position_products
from fairseq_poolingformer.attention.backends.triton.tiles import (
    ALL,
    BEYOND,
    HIDDEN,
    WITHIN,
    add_term_gradients,
    all_count,
    draw_kept,
    inside,
    keys_of_split,
    load_block,
    load_lse,
    load_rows,
    load_tokens,
    mask_edge,
    mask_scores,
    place_of_split,
    places_in_class,
    pools_of_side,
    queries_seeing,
    rows_of,
    split_of,
    store_rows,
)

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _query_gradient(
    acc, q, queries, query_position, first_token, last_token, grad_out, lse, delta,
    key, value, stride_kn, key_hidden, stride_sn, key_token, first, gap, gap_stop, stop, inner_first, inner_stop,
    num_keys, key_stride, scale, table, farthest, before, num_tokens, near_left, near_right, grad_table, positions,
    head, first_key_position, spacing, seed, dropped, rescale, draw, batch_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    MOST_HIDDEN: tl.constexpr, SEEN: tl.constexpr, INSIDE: tl.constexpr, DROPOUT: tl.constexpr,
    DIAGONAL: tl.constexpr, COARSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the share of a lane's keys to the gradient of a block of queries; ``forward.py`` has the same loop."""
    for place in range(first, stop - (gap_stop - gap), BLOCK_N):
        start = place if INSIDE else tl.where(place < gap, place, place + gap_stop - gap)
        keys = start + tl.arange(0, BLOCK_N)
        rows, count = rows_of(key_token, keys, num_keys)
        position = first_key_position + spacing * key_stride * rows if key_token is None else rows
        token = rows
        if INSIDE:
            k = load_block(key, start, stride_kn, BLOCK_N, HEAD_DIM, BLOCK_D)
            v = load_block(value, start, stride_kn, BLOCK_N, HEAD_DIM, BLOCK_D)
        else:
            token = load_tokens(key_hidden, stride_sn, rows, count, key_stride, MOST_HIDDEN)
            if SEEN == BEYOND:
                token = places_in_class(token, first_key_position, spacing)
            rows = tl.where(token < HIDDEN, rows, count)
            k = load_rows(key, rows, count, stride_kn, HEAD_DIM, BLOCK_D)
            v = load_rows(value, rows, count, stride_kn, HEAD_DIM, BLOCK_D)
        product = add_position_products(
            tl.dot(q, tl.trans(k), input_precision=PRECISION), q, k, query_position, position, spacing, positions, head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, COARSE, False, PRECISION,
        )  # fmt: skip
        scores, unseen = mask_scores(
            product, token[None, :], first_token[:, None], last_token[:, None],
            query_position[:, None], position[None, :], scale, table, farthest,
            before, num_tokens, near_left, near_right, key_stride, SEEN, INSIDE,
        )  # fmt: skip
        weights = tl.exp2(scores - lse[:, None])  # P from the forward pass's log-denominator
        if not INSIDE and before is not None:
            weights *= unseen
        grad_weights = tl.dot(grad_out, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            kept = draw_kept(seed, dropped, draw, batch_head, queries, start, BLOCK_N)
            grad_weights = tl.where(kept, grad_weights * rescale, 0.0)
        grad_scores = weights * (grad_weights - delta[:, None])  # dS = P ∘ (dP − δ), the softmax's derivative
        if INSIDE and SEEN == WITHIN:
            below = start < inner_first
            grad_scores = mask_edge(
                grad_scores, 0.0, below | (start + BLOCK_N > inner_stop), below, (keys * key_stride)[None, :],
                first_token[:, None], last_token[:, None], query_position[:, None], key_stride, near_left, near_right,
                before is not None,
            )  # fmt: skip
        if grad_table is not None:
            add_term_gradients(
                grad_scores, query_position, position, spacing, grad_table, farthest, DIAGONAL, BLOCK_M, BLOCK_N
            )
        acc = tl.dot(grad_scores.to(k.dtype), k, acc, input_precision=PRECISION)  # dQ += dS K
        acc = add_position_gradients(
            acc, grad_scores, q, query_position, position, tl.minimum(BLOCK_N, num_keys - start), spacing, scale * LN2,
            positions, head, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, COARSE, False, PRECISION,
        )  # fmt: skip
    return acc


@triton.jit(do_not_specialize=VARYING)
def backward_queries(
    query, query_token, key, value, key_hidden, real, extra_key, extra_value, extra_token, pool_key, pool_value,
    out, lse, grad_out, grad_lse, delta, grad_query, grad_table, table, before, seed, positions, extra_positions,
    stride_qb, stride_qh, stride_qm, num_queries, stride_kb, stride_kh, stride_kn, stride_sb, stride_sn, num_keys,
    stride_ob, stride_oh, stride_om, stride_lb, stride_lh, stride_lm, stride_en, num_extra,
    stride_pb, stride_ph, stride_pn, num_pools, pool_lowest, pool_highest, pool_size,
    heads, num_splits, lowest, highest, key_stride, first_query_position, first_key_position, spacing,
    scale, farthest, num_tokens, near_left, near_right, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BANDED: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_EXTRA: tl.constexpr,
    BLOCK_POOLS: tl.constexpr, PARTIAL: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Write ``grad_query`` and ``delta``, the rows' sums of out · grad_out less ``grad_lse``; add to ``grad_table``.

    Grid: (query blocks · B·H, splits).
    """
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
    place = batch * stride_ob + head * stride_oh
    do = load_rows(grad_out + place, rows, count, stride_om, HEAD_DIM, BLOCK_D)
    o = load_rows(out + place, rows, count, stride_om, HEAD_DIM, BLOCK_D)
    grad_query_rows = grad_query + place
    place = batch * stride_lb + head * stride_lh
    row_lse = load_lse(lse + place, queries, num_queries, stride_lm)
    row_delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # δ = Σ O ∘ dO, which is Σ P ∘ dP
    if grad_lse is not None:
        row_delta -= tl.load(grad_lse + place + queries.to(tl.int64) * stride_lm, mask=queries < num_queries, other=0.0)
    tl.store(delta + place + queries.to(tl.int64) * stride_lm, row_delta, mask=queries < num_queries)
    query_position = first_query_position + spacing * rows
    if table is not None:
        table += head * (2 * farthest + 1)
    if grad_table is not None:
        grad_table += head * (2 * farthest + 1)
    if before is not None:
        before += batch * (num_tokens + 1)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    last_query = tl.minimum(first_query + BLOCK_M, num_queries) - 1
    place = batch * stride_kb + head * stride_kh
    if key_hidden is not None:
        key_hidden += batch * stride_sb
    most_hidden: tl.constexpr = 1 if GATHERED else 0
    first_before = before if pool_key is None else None  # unseen-token counts, if the first lane's keys are pools
    UNMASKED: tl.constexpr = BLOCK_D <= 64 and first_before is None  # a second loop; wider vectors would spill
    first, stop, start, end, inner_first, inner_stop = keys_of_split(
        first_query, last_query, num_keys, lowest, highest, key_stride, split, num_splits, real, batch,
        first_key_position, spacing, 1.0, key_hidden, stride_sn, most_hidden, BANDED, BLOCK_N, UNMASKED,
    )  # fmt: skip
    for INSIDE in tl.static_range(2 if UNMASKED else 1):
        acc = _query_gradient(
            acc, q, queries, query_position, queries + lowest, queries + highest, do, row_lse, row_delta,
            key + place, value + place, stride_kn, key_hidden, stride_sn, None,
            start if INSIDE else first, end if INSIDE else start, end, end if INSIDE else stop, inner_first, inner_stop,
            num_keys, key_stride, scale, table, farthest, first_before, num_tokens, near_left, near_right, grad_table,
            positions, head, first_key_position, spacing, seed, dropped, rescale, draw, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, most_hidden, WITHIN if BANDED else ALL, INSIDE == 1, DROPOUT, DIAGONAL,
            GATHERED, PRECISION,
        )  # fmt: skip
    if pool_key is not None:
        place_of_pools = batch * stride_pb + head * stride_ph
        whole = tl.log2(pool_size.to(tl.float32))
        for SIDE in range(2):
            first, stop, start, end, inner_first, inner_stop = pools_of_side(
                SIDE, first_query, last_query, num_pools, pool_lowest, pool_highest, pool_size, before, num_tokens,
                near_left, near_right, 1.0, BLOCK_POOLS, UNMASKED,
            )  # fmt: skip
            stop, end = tl.where(split == 0, stop, first), tl.where(split == 0, end, start)
            for INSIDE in tl.static_range(2 if UNMASKED else 1):
                acc = _query_gradient(
                    acc, q, queries, query_position, queries + pool_lowest, queries + pool_highest, do,
                    row_lse - whole if INSIDE else row_lse, row_delta,
                    pool_key + place_of_pools, pool_value + place_of_pools, stride_pn, None, 0, None,
                    start if INSIDE else first, end if INSIDE else start, end, end if INSIDE else stop, inner_first,
                    inner_stop, num_pools, pool_size, scale, None, 0, before, num_tokens, near_left, near_right,
                    None, positions, head, 0, 1, seed, dropped, rescale, draw + 4, batch_head,
                    HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_POOLS, 0, WITHIN, INSIDE == 1, DROPOUT, False, False, PRECISION,
                )  # fmt: skip
    if extra_key is not None:
        stop = tl.where(split == 0, num_extra, 0)
        acc = _query_gradient(
            acc, q, queries, query_position, queries + lowest, queries + highest, do, row_lse, row_delta,
            extra_key + place, extra_value + place, stride_en, None, 0, extra_token + batch * num_extra,
            0, 0, 0, stop, 0, 0, num_extra, 1,
            scale, table, farthest, None, 0, 0, 0, grad_table, extra_positions, head, first_key_position, spacing,
            seed, dropped, rescale, draw + 1, batch_head, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_EXTRA, 0,
            BEYOND if extra_positions.num_rows is None else ALL, False, DROPOUT, False, True, PRECISION,
        )  # fmt: skip
    acc = acc * scale * LN2  # scale is α / ln 2, for scores to base 2
    if PARTIAL:
        grad_query += place_of_split(split, batch_head, blocks, num_queries) * HEAD_DIM
        store_rows(grad_query, acc, queries, num_queries, HEAD_DIM, HEAD_DIM, BLOCK_D, False)
    else:
        store_rows(grad_query_rows, acc, queries, num_queries, stride_om, HEAD_DIM, BLOCK_D, False)


@triton.jit
def _key_gradient(
    grad_k, grad_v, k, v, first_key, token, key_position,
    query, stride_qm, grad_out, stride_om, lse, delta, stride_lm, query_token, first, gap, gap_stop, stop, inner_first,
    inner_stop, shown_first, shown_stop, num_queries, lowest, highest, scale, table, farthest, before, num_tokens,
    near_left, near_right, pool_size, extra_score, positions, head, first_query_position, spacing,
    seed, dropped, rescale, draw, batch_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    SEEN: tl.constexpr, INSIDE: tl.constexpr, DROPOUT: tl.constexpr, COARSE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the share of the queries ``first`` … ``gap`` and ``gap_stop`` … ``stop`` to the gradients of a block of keys.

    Tiles are (keys × queries), so that no product needs a transposed tile of weights. INSIDE adds ``extra_score``.
    """
    for place in range(first, stop - (gap_stop - gap), BLOCK_M):
        start = place if INSIDE else tl.where(place < gap, place, place + gap_stop - gap)
        queries = start + tl.arange(0, BLOCK_M)
        rows, count = rows_of(query_token, queries, num_queries)
        if INSIDE:
            q = load_block(query, start, stride_qm, BLOCK_M, HEAD_DIM, BLOCK_D)
            do = load_block(grad_out, start, stride_om, BLOCK_M, HEAD_DIM, BLOCK_D)
            row_lse = tl.load(lse + queries.to(tl.int64) * stride_lm) - extra_score
            row_delta = tl.load(delta + queries.to(tl.int64) * stride_lm)
        else:
            q = load_rows(query, rows, count, stride_qm, HEAD_DIM, BLOCK_D)
            do = load_rows(grad_out, rows, count, stride_om, HEAD_DIM, BLOCK_D)
            row_lse = load_lse(lse, queries, num_queries, stride_lm)
            row_delta = tl.load(delta + queries.to(tl.int64) * stride_lm, mask=queries < num_queries, other=0.0)
        position = first_query_position + spacing * rows
        product = add_position_products(
            tl.dot(k, tl.trans(q), input_precision=PRECISION), k, q, key_position, position, spacing, positions, head,
            HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_M, COARSE, True, PRECISION,
        )  # fmt: skip
        scores, unseen = mask_scores(
            product, token[:, None], (queries + lowest)[None, :], (queries + highest)[None, :],
            position[None, :], key_position[:, None], scale, table, farthest,
            before, num_tokens, near_left, near_right, pool_size, SEEN, INSIDE,
        )  # fmt: skip
        weights = tl.exp2(scores - row_lse[None, :])
        if not INSIDE and before is not None:
            weights *= unseen
        if INSIDE and before is not None:
            edge = (start < inner_first) | (start + BLOCK_M > inner_stop)
            edge = edge | ((start < shown_stop) & (start + BLOCK_M > shown_first))
            weights = mask_edge(
                weights, 0.0, edge, False, token[:, None], (queries + lowest)[None, :], (queries + highest)[None, :],
                position[None, :], pool_size, near_left, near_right, True,
            )  # fmt: skip
        grad_weights = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        kept_weights = weights
        if DROPOUT:
            kept = tl.trans(draw_kept(seed, dropped, draw, batch_head, queries, first_key, BLOCK_N))
            kept_weights = tl.where(kept, weights, 0.0)
            grad_weights = tl.where(kept, grad_weights * rescale, 0.0)
        grad_v = tl.dot(kept_weights.to(do.dtype), do, grad_v, input_precision=PRECISION)  # dV += Pᵀ dO
        grad_scores = weights * (grad_weights - row_delta[None, :])
        grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision=PRECISION)  # dK += dSᵀ Q
        grad_k = add_position_gradients(
            grad_k, grad_scores, k, key_position, position, tl.minimum(BLOCK_M, num_queries - start), spacing,
            scale * LN2, positions, head, HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_M, COARSE, True, PRECISION,
        )  # fmt: skip
    return grad_k, grad_v


@triton.jit(do_not_specialize=VARYING)
def backward_keys(
    query, key, value, key_hidden, key_token, grad_out, lse, delta, extra_lse, extra_delta, extra_token,
    grad_key, grad_value, table, before, seed, positions, extra_positions,
    stride_qb, stride_qh, stride_qm, num_queries, stride_kb, stride_kh, stride_kn, stride_sb, stride_sn, num_keys,
    stride_ob, stride_oh, stride_om, stride_lb, stride_lh, stride_lm, num_extra, extra_draw,
    stride_dkb, stride_dkh, stride_dkn,
    heads, num_splits, lowest, highest, key_stride, first_query_position, first_key_position, spacing,
    scale, farthest, num_tokens, near_left, near_right, dropped, rescale, draw,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BANDED: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_EXTRA: tl.constexpr,
    PARTIAL: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Write, or with ADD add to, ``grad_key`` and ``grad_value``. Grid: (key blocks · B·H, splits)."""
    blocks = tl.cdiv(num_keys, BLOCK_N)
    batch_head, split = tl.program_id(0) // blocks, tl.program_id(1)
    batch, head = (batch_head // heads).to(tl.int64), (batch_head % heads).to(tl.int64)
    first_key = tl.program_id(0) % blocks * BLOCK_N
    keys = first_key + tl.arange(0, BLOCK_N)
    if DROPOUT:
        seed = tl.load(seed)
    if key_token is not None:
        key_token += batch * num_keys
    rows, count = rows_of(key_token, keys, num_keys)
    if key_hidden is not None:
        key_hidden += batch * stride_sb
    token = load_tokens(key_hidden, stride_sn, rows, count, key_stride, 0)
    SEEN: tl.constexpr = WITHIN if BANDED else BEYOND if key_token is not None and positions.num_rows is None else ALL
    if SEEN == BEYOND:
        token = places_in_class(token, first_key_position, spacing)
    global_token = token  # of what global queries see, who see global keys, too
    if extra_token is not None:
        global_token = load_tokens(key_hidden, stride_sn, rows, count, key_stride, 1)
    place = batch * stride_kb + head * stride_kh
    seen_rows = tl.where(global_token < HIDDEN, rows, count)
    k = load_rows(key + place, seen_rows, count, stride_kn, HEAD_DIM, BLOCK_D)
    v = load_rows(value + place, seen_rows, count, stride_kn, HEAD_DIM, BLOCK_D)
    key_position = first_key_position + spacing * key_stride * rows if key_token is None else rows
    if table is not None:
        table += head * (2 * farthest + 1)
    if before is not None:
        before += batch * (num_tokens + 1)
    query += batch * stride_qb + head * stride_qh
    grad_out += batch * stride_ob + head * stride_oh
    place = batch * stride_lb + head * stride_lh

    grad_k = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    grad_v = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    last_key = tl.minimum(first_key + BLOCK_N, num_keys) - 1
    first, stop = queries_seeing(first_key, last_key, num_queries, lowest, highest, key_stride, BANDED)
    first, stop = split_of(first, stop, split, num_splits, BLOCK_M)
    start, end = inside(first, stop, 0, num_queries, BLOCK_M)  # blocks of queries that all exist
    inner_first, inner_stop = 0, num_queries  # queries that see all keys of the block
    if BANDED:
        inner_first = tl.maximum((first_key + BLOCK_N - 1) * key_stride - highest, 0)
        inner_stop = first_key * key_stride - lowest + 1
    extra_score, shown_first, shown_stop = 0.0, 0, 0
    if before is not None:
        extra_score = tl.log2(key_stride.to(tl.float32))
        begin = first_key * key_stride + first_key_position - first_query_position
        # queries whose window shows a token of these pools
        shown_first, shown_stop = begin - near_right, begin + BLOCK_N * key_stride + near_left
        all_seen = all_count(first_key, first_key + BLOCK_N, key_stride, before, num_tokens)
    else:  # an edge within the unmasked loop would spill 450 bytes on compute capability 8.0
        start, end = inside(start, end, inner_first, inner_stop, BLOCK_M)
        all_seen = tl.max(token, 0) < HIDDEN
    UNMASKED: tl.constexpr = BLOCK_D <= 64 and SEEN != BEYOND
    end = tl.where(all_seen & UNMASKED, end, start)
    for INSIDE in tl.static_range(2 if UNMASKED else 1):
        grad_k, grad_v = _key_gradient(
            grad_k, grad_v, k, v, first_key, token, key_position,
            query, stride_qm, grad_out, stride_om, lse + place, delta + place, stride_lm, None,
            start if INSIDE else first, end if INSIDE else start, end, end if INSIDE else stop, inner_first, inner_stop,
            shown_first, shown_stop, num_queries, lowest, highest, scale, table, farthest, before, num_tokens,
            near_left, near_right, key_stride, extra_score, positions, head, first_query_position, spacing,
            seed, dropped, rescale, draw, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, SEEN, INSIDE == 1, DROPOUT, key_token is not None, PRECISION,
        )  # fmt: skip
    if extra_token is not None:
        place = batch_head.to(tl.int64) * num_extra
        stop = tl.where(split == 0, num_extra, 0)
        grad_k, grad_v = _key_gradient(
            grad_k, grad_v, k, v, first_key, global_token, key_position,
            query, stride_qm, grad_out, stride_om, extra_lse + place, extra_delta + place, 1,
            extra_token + batch * num_extra, 0, 0, 0, stop, 0, 0, 0, 0, num_extra,
            lowest, highest, scale, table, farthest, None, 0, 0, 0, 1, 0.0,
            extra_positions, head, first_query_position, spacing,
            seed, dropped, rescale, extra_draw, batch_head,
            HEAD_DIM, BLOCK_D, BLOCK_EXTRA, BLOCK_N, ALL, False, DROPOUT, True, PRECISION,
        )  # fmt: skip
    grad_k, grad_v = grad_k * scale * LN2, grad_v * rescale
    if PARTIAL:
        place = place_of_split(split, batch_head, blocks, num_keys) * HEAD_DIM
        store_rows(grad_key + place, grad_k, keys, num_keys, HEAD_DIM, HEAD_DIM, BLOCK_D, False)
        store_rows(grad_value + place, grad_v, keys, num_keys, HEAD_DIM, HEAD_DIM, BLOCK_D, False)
    else:
        place = batch * stride_dkb + head * stride_dkh
        store_rows(grad_key + place, grad_k, keys, num_keys, stride_dkn, HEAD_DIM, BLOCK_D, ADD)
        store_rows(grad_value + place, grad_v, keys, num_keys, stride_dkn, HEAD_DIM, BLOCK_D, ADD)

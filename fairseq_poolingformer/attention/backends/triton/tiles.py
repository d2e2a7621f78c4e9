"""Operations of the Triton kernels on one tile of (queries × keys): loading, masking, score terms, dropout.

All kernels share them. A tile's queries and keys come as index vectors that broadcast against each other, so that
either may be its rows.
"""

import triton
import triton.language as tl

from fairseq_poolingformer.attention.backends.triton import arguments

HIDDEN = tl.constexpr(arguments.HIDDEN)
# which of a lane's keys a query sees: all, those of its window, or those beyond it
ALL, WITHIN, BEYOND = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def row_places(x, rows, count, stride, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Pointers (rows, BLOCK_D) to rows of the (count, HEAD_DIM) matrix at ``x``, and which of them exist."""
    columns = tl.arange(0, BLOCK_D)[None, :]
    exist = (rows < count)[:, None]
    if HEAD_DIM < BLOCK_D:
        exist = exist & (columns < HEAD_DIM)
    return x + rows.to(tl.int64)[:, None] * stride + columns, exist


@triton.jit
def load_rows(x, rows, count, stride, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of the (count, HEAD_DIM) matrix at ``x``: (rows, BLOCK_D), zeros outside."""
    places, exist = row_places(x, rows, count, stride, HEAD_DIM, BLOCK_D)
    return tl.load(places, mask=exist, other=0.0)


@triton.jit
def load_block(x, first, stride, BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """A block of rows that all exist: (BLOCK, BLOCK_D)."""
    columns = tl.arange(0, BLOCK_D)[None, :]
    places = x + tl.cast(first, tl.int64) * stride + (tl.arange(0, BLOCK).to(tl.int64)[:, None] * stride + columns)
    return tl.load(places, mask=columns < HEAD_DIM, other=0.0) if HEAD_DIM < BLOCK_D else tl.load(places)


@triton.jit
def store_rows(x, values, rows, count, stride, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, ADD: tl.constexpr):
    """Store rows that :func:`load_rows` would load; with ADD add to them."""
    places, exist = row_places(x, rows, count, stride, HEAD_DIM, BLOCK_D)
    if ADD:
        values += tl.load(places, mask=exist, other=0.0)
    tl.store(places, values.to(x.dtype.element_ty), mask=exist)


@triton.jit
def rows_of(token, index, count):
    """The rows of the queries or keys ``index`` in their tensors, and the end of the rows that exist.

    They are ``index`` itself, or the ``count`` numbers at ``token``, HIDDEN in empty slots.
    """
    if token is None:
        rows = index
        end = count
    else:
        rows = tl.load(token + index, mask=index < count, other=HIDDEN)
        end = HIDDEN
    return rows, end


@triton.jit
def load_tokens(key_hidden, stride, keys, count, key_stride, MOST_HIDDEN: tl.constexpr):
    """The places of keys in the band; HIDDEN for keys that are hidden or do not exist.

    A key is hidden where ``key_hidden`` is more than MOST_HIDDEN: 1 hides it from windows, 2 from global queries, too.
    """
    tokens = tl.where(keys < count, keys * key_stride, HIDDEN)
    if key_hidden is not None:
        hidden = tl.load(key_hidden + keys.to(tl.int64) * stride, mask=keys < count, other=0)
        tokens = tl.where(hidden <= MOST_HIDDEN, tokens, HIDDEN)
    return tokens


@triton.jit
def places_in_class(token, first_key_position, spacing):
    """The places of tokens among the keys of a residue class; those of others are beyond all windows."""
    distance = token - first_key_position
    place = tl.where(distance % spacing == 0, distance // spacing, HIDDEN - 1)
    return tl.where(token < HIDDEN, place, HIDDEN)


@triton.jit
def real_keys(real, batch, first_key_position, step):
    """The first key of a row that is no padding, the end of the last, and whether keys between them are hidden.

    Neighbouring keys are ``step`` tokens apart. ``real`` is ``arguments.Tokens.real``; without it no key is hidden.
    """
    if real is None:
        first, stop, holes = 0, HIDDEN, 0
    else:
        real += batch * 3
        first = tl.maximum(tl.load(real) - first_key_position + step - 1, 0) // step
        stop = tl.maximum(tl.load(real + 1) - first_key_position + step - 1, 0) // step
        holes = tl.load(real + 2)
    return first, stop, holes


@triton.jit
def load_lse(lse, queries, num_queries, stride):
    """The logarithms of the softmax's denominators; +inf outside, which makes weights zero."""
    return tl.load(lse + queries.to(tl.int64) * stride, mask=queries < num_queries, other=float("inf"))


@triton.jit
def place_of_split(split, batch_head, blocks, length):
    """The first row of a split and head in a (splits, B, H, length) tensor of partial results."""
    return (split * (tl.num_programs(0) // blocks) + batch_head).to(tl.int64) * length


@triton.jit
def split_of(first, stop, split, num_splits, BLOCK: tl.constexpr):
    """The range of one of ``num_splits`` splits of ``first`` … ``stop``, in whole blocks."""
    size = tl.cdiv(tl.cdiv(tl.maximum(stop - first, 0), BLOCK), num_splits) * BLOCK
    return first + split * size, tl.minimum(stop, first + (split + 1) * size)


@triton.jit
def keys_seen(first_query, last_query, num_keys, lowest, highest, key_stride, BANDED: tl.constexpr):
    """The range of keys that some query of ``first_query`` … ``last_query`` sees.

    It starts at a multiple of 16, so that :func:`draw_kept` draws for the same eight keys whatever the block size.
    """
    if BANDED:
        # the first key with key·key_stride >= first_query + lowest, and the first with more than last_query + highest
        first = (tl.maximum(first_query + lowest, 0) + key_stride - 1) // key_stride // 16 * 16
        stop = tl.minimum(num_keys, tl.maximum(last_query + highest + key_stride, 0) // key_stride)
    else:
        first, stop = 0, num_keys
    return first, stop


@triton.jit
def queries_seeing(first_key, last_key, num_queries, lowest, highest, key_stride, BANDED: tl.constexpr):
    """The range of queries that see some key of ``first_key`` … ``last_key``."""
    if BANDED:
        first = tl.maximum(first_key * key_stride - highest, 0)
        stop = tl.minimum(num_queries, last_key * key_stride - lowest + 1)
    else:
        first, stop = 0, num_queries
    return first, stop


@triton.jit
def inside(first, stop, inner_first, inner_stop, BLOCK: tl.constexpr):
    """The blocks from ``first`` to ``stop``, the last one whole, that lie in ``inner_first`` … ``inner_stop``.

    Returns their range, which begins at ``first`` where it is empty.
    """
    start = first + tl.cdiv(tl.maximum(inner_first - first, 0), BLOCK) * BLOCK
    blocks = tl.minimum(tl.maximum(inner_stop - first, 0) // BLOCK, tl.cdiv(tl.maximum(stop - first, 0), BLOCK))
    end = first + blocks * BLOCK
    return tl.where(start < end, start, first), tl.where(start < end, end, first)


@triton.jit
def keys_of_split(
    first_query, last_query, num_keys, lowest, highest, key_stride, split, num_splits, real, batch, first_key_position,
    spacing, scale, key_hidden, stride_sn, MOST_HIDDEN: tl.constexpr, BANDED: tl.constexpr, BLOCK: tl.constexpr,
    UNMASKED: tl.constexpr,
):  # fmt: skip
    """The keys of one split that some query of ``first_query`` … ``last_query`` sees.

    Returns:
        Their range, in it that of the blocks in which every key exists and none is hidden, empty without a loop for
        them, UNMASKED; and the range of keys that all queries see.
    """
    first, stop = keys_seen(first_query, last_query, num_keys, lowest, highest, key_stride, BANDED)
    first_real, stop_real, holes = real_keys(real, batch, first_key_position, spacing * key_stride)
    first, stop = tl.maximum(first, first_real // 16 * 16), tl.minimum(stop, stop_real)
    first, stop = split_of(first, stop, split, num_splits, BLOCK)
    stop_real = tl.minimum(stop_real, num_keys)
    inner_first, inner_stop = 0, stop_real
    if BANDED:
        inner_first = (tl.maximum(last_query + lowest, 0) + key_stride - 1) // key_stride
        inner_stop = tl.maximum(first_query + highest + key_stride, 0) // key_stride
    start, end = inside(first, stop, first_real, stop_real, BLOCK)
    # the greatest product has the greatest score, and no block lies at both edges of the window
    end = tl.where((scale > 0.0) & (inner_stop - inner_first >= BLOCK), end, start)
    if not UNMASKED:
        end = first  # where the compiler knew that the range is empty, more registers would spill
    if key_hidden is not None:  # noqa: SIM102 (decided by the compiler)
        if holes > 0:
            hidden = tl.zeros([256], tl.int32)
            for place in range(start, end if BANDED else start, 256):
                keys = place + tl.arange(0, 256)
                hidden = tl.maximum(
                    hidden, tl.load(key_hidden + keys.to(tl.int64) * stride_sn, mask=keys < end, other=0)
                )
            end = tl.where((tl.max(hidden, 0) > MOST_HIDDEN) | (not BANDED), start, end)
    return first, stop, tl.where(start < end, start, first), tl.where(start < end, end, first), inner_first, inner_stop


@triton.jit
def mask_edge(
    x, hidden: tl.constexpr, edge, below, token, first_token, last_token, query_position, pool_size, near_left,
    near_right, POOLS: tl.constexpr,
):  # fmt: skip
    """The tile ``x``, at an edge of the band ``hidden`` where a query does not see a key.

    The edge ``below`` hides keys before ``first_token``, the other those behind ``last_token``; no tile has both. Of
    POOLS, all of whose tokens count, those are hidden of which the query's window shows all tokens, and weights
    (``hidden`` is 0, or None where they are masked) are multiplied by the share of the others.
    """
    masked = x
    if edge:
        if POOLS:
            seen = (token >= first_token) & (token <= last_token)
            seen = seen & ((token < query_position - near_left) | (token > query_position + near_right + 1 - pool_size))
            if hidden is None or hidden == 0.0:
                _, _, count = shown_tokens(query_position, token, pool_size, near_left, near_right)
                masked = x * (count.to(tl.float32) * (1.0 / pool_size.to(tl.float32)))
        else:
            seen = (token < tl.where(below, first_token, last_token + 1)) ^ below  # one comparison for both edges
        if hidden is not None:
            masked = tl.where(seen, masked, hidden)
    return tl.where(edge, masked, x)  # Triton fits its layout to the next product, which it seeks out here


@triton.jit
def all_count(first, stop, pool_size, before, num_tokens):
    """Whether all tokens of the pools ``first`` … ``stop`` exist and count."""
    exist = stop * pool_size <= num_tokens
    count = tl.load(before + tl.minimum(stop * pool_size, num_tokens))
    return exist & (count - tl.load(before + tl.minimum(first * pool_size, num_tokens)) == (stop - first) * pool_size)


@triton.jit
def pools_of_side(
    SIDE, first_query, last_query, num_pools, lowest, highest, pool_size, before, num_tokens, near_left, near_right,
    scale, BLOCK: tl.constexpr, UNMASKED: tl.constexpr,
):  # fmt: skip
    """The pools on the left (SIDE 0) or right of the window of ``first_query`` … ``last_query``, in whole blocks.

    Pools of which every query's window shows all tokens are on neither side.

    Returns:
        Their range, in it that of the blocks of which all tokens count, all or none, and the range of the pools that
        all queries see, and of which no query's window shows a token.
    """
    first, stop = keys_seen(first_query, last_query, num_pools, lowest, highest, pool_size, True)
    shown = tl.maximum(last_query - near_left + pool_size - 1, 0) // pool_size  # the first pool that all windows show
    middle = first + tl.cdiv(tl.maximum(shown - first, 0), BLOCK) * BLOCK
    if SIDE == 0:
        stop = tl.minimum(stop, middle)
        inner_first = (tl.maximum(last_query + lowest, 0) + pool_size - 1) // pool_size
        inner_stop = tl.maximum(first_query - near_left, 0) // pool_size
    else:
        first = tl.maximum(middle, (first_query + near_right + 1) // pool_size // 16 * 16)
        inner_first = (last_query + near_right) // pool_size + 1
        inner_stop = tl.maximum(first_query + highest + pool_size, 0) // pool_size
    start, end = inside(first, stop, 0, num_tokens // pool_size, BLOCK)
    end = tl.where((scale > 0.0) & all_count(start, end, pool_size, before, num_tokens), end, start)
    if not UNMASKED:
        end = first
    return first, stop, tl.where(start < end, start, first), tl.where(start < end, end, first), inner_first, inner_stop


@triton.jit
def shown_tokens(query_position, key_position, pool_size, near_left, near_right):
    """The first of a pool's tokens that the query's window shows, the end of the last, and the number of the others."""
    first = tl.maximum(key_position, query_position - near_left)
    stop = tl.maximum(tl.minimum(key_position + pool_size, query_position + near_right + 1), first)
    return first, stop, pool_size - (stop - first)


@triton.jit
def unseen_tokens(query_position, key_position, pool_size, before, num_tokens, near_left, near_right):
    """``UnseenTokens.counts``: how many of a pool's tokens count and lie outside of the query's window.

    ``before`` has the numbers of tokens before each of the places 0 … ``num_tokens`` that count. What the window shows
    of a pool is looked up there only in tiles with a pool of which some tokens do not count.
    """
    end = key_position + pool_size
    of_pool = tl.load(before + tl.minimum(end, num_tokens)) - tl.load(before + tl.minimum(key_position, num_tokens))
    first, stop, count = shown_tokens(query_position, key_position, pool_size, near_left, near_right)
    if tl.min(of_pool) < pool_size:
        first = tl.load(before + tl.minimum(tl.maximum(first, 0), num_tokens))
        stop = tl.load(before + tl.minimum(tl.maximum(stop, 0), num_tokens))
        count = of_pool - (stop - first)
    return count


@triton.jit
def mask_scores(
    product, key_token, first_token, last_token, query_position, key_position, scale, table, farthest,
    before, num_tokens, near_left, near_right, pool_size,
    SEEN: tl.constexpr, INSIDE: tl.constexpr,
):  # fmt: skip
    """The tile's scores for ``exp2``: scaled, with score terms, -inf where a query does not see a key.

    INSIDE nothing is hidden; else weights of pools are to be multiplied by the second result, their unseen tokens.

    By SEEN a query sees all keys, those at ``first_token`` … ``last_token``, or those beyond. ``scale`` and ``table``,
    a score for each clamped distance, include the factor log2(e). ``product`` includes the scores of positions already.
    """
    scores, count = product * scale, 1
    if table is not None:
        distance = query_position - key_position
        scores += tl.load(table + tl.minimum(tl.maximum(distance, -farthest), farthest) + farthest)
    if not INSIDE:
        if SEEN == WITHIN:
            seen = (key_token >= first_token) & (key_token <= last_token)
        elif SEEN == BEYOND:
            seen = ((key_token < first_token) | (key_token > last_token)) & (key_token < HIDDEN)
        else:
            seen = key_token < HIDDEN
        if before is not None:
            count = unseen_tokens(query_position, key_position, pool_size, before, num_tokens, near_left, near_right)
            seen = seen & (count > 0)
        scores = tl.where(seen, scores, float("-inf"))
    return scores, count


@triton.jit
def add_term_gradients(
    grad_scores,
    query_position,
    key_position,
    spacing,
    grad_table,
    farthest,
    DIAGONAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add to the gradient of the table of distances, given the gradient of the tile's (BLOCK_M, BLOCK_N) scores.

    With DIAGONAL neighbouring queries are as far apart as neighbouring keys, ``spacing`` tokens: a diagonal has one
    distance and is summed first, which takes BLOCK_M + BLOCK_N additions to memory instead of BLOCK_M · BLOCK_N.
    """
    if DIAGONAL:
        # number t of row r is in column t + r − (BLOCK_M − 1): a gather moves each diagonal into a column of its own
        diagonal = tl.arange(0, 2 * (BLOCK_M if BLOCK_M > BLOCK_N else BLOCK_N))
        column = diagonal[None, :] + tl.arange(0, BLOCK_M)[:, None] - (BLOCK_M - 1)
        inside = (column >= 0) & (column < BLOCK_N)
        skewed = tl.gather(grad_scores, tl.where(inside, column, 0), 1)
        grad = tl.sum(tl.where(inside, skewed, 0.0), 0)
        corner = tl.min(query_position, 0) - tl.min(key_position, 0)
        distance = corner + spacing * (BLOCK_M - 1 - diagonal)
    else:
        grad = grad_scores
        distance = query_position[:, None] - key_position[None, :]
    near = (distance > -farthest) & (distance < farthest) & (grad != 0.0)
    tl.atomic_add(grad_table + distance + farthest, grad, mask=near, sem="relaxed")
    # all farther distances share one place, and so they are summed first
    before = tl.sum(tl.where(distance <= -farthest, grad, 0.0))
    after = tl.sum(tl.where((distance >= farthest) & (distance > -farthest), grad, 0.0))
    tl.atomic_add(grad_table, before, mask=before != 0.0, sem="relaxed")
    tl.atomic_add(grad_table + 2 * farthest, after, mask=after != 0.0, sem="relaxed")


@triton.jit
def draw_kept(seed, dropped, draw, batch_head, queries, first_key, BLOCK_N: tl.constexpr):
    """Which weights dropout keeps: (queries, BLOCK_N) bool, a function of seed, draw, head, query and key only.

    Each is drawn with 16 bits, eight keys from one call of Philox (Salmon et al. 2011; seven rounds pass all tests).
    """
    group = first_key // 8 + tl.arange(0, BLOCK_N // 8)[None, :]
    query = queries[:, None] + group * 0  # adding zeros gives every number the tile's shape
    group = queries[:, None] * 0 + group
    a, b, c, d = tl.philox(seed, query, group, query * 0 + batch_head, query * 0 + draw, 7)
    four = tl.join(tl.join(a, b), tl.join(c, d))
    eight = tl.join(four & 0xFFFF, four >> 16)
    return tl.reshape(eight, (queries.shape[0], BLOCK_N)) >= dropped

"""Draw two_levels.svg and context_parallel.svg from the package's own definition of who sees whom.

python docs/make_figure.py
"""

from __future__ import annotations

from pathlib import Path

from fairseq_poolingformer.attention import Pooling, Window, visible_pairs
from fairseq_poolingformer.attention.sharding.halo import pools_of, pools_seen, tokens_of, tokens_seen

TOKENS, WINDOW, POOLED_WINDOW, POOLING = 36, Window(3), Window(14), Pooling(5, 4)
CELL, GAP = 9, 60
COLORS = {"window": "#1f6f8b", "global": "#c8553d", "pooled": "#e0a458"}


def cell(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{CELL - 1}" fill="{color}"/>'


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "middle") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="#333" '
        f'font-family="Helvetica, Arial, sans-serif">{words}</text>'
    )


def write(name: str, parts: list[str], width: float, height: float) -> None:
    """Write a picture beside this file."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    lines = [svg, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"]
    Path(__file__).with_name(name).write_text("\n".join(lines), encoding="utf-8")


def two_levels() -> None:
    """Queries and keys of both levels."""
    side = TOKENS * CELL
    left, top = 30, 46
    second = left + side + GAP
    parts = [f'<rect x="{x}" y="{top}" width="{side}" height="{side}" fill="#eef1f3"/>' for x in (left, second)]
    window = visible_pairs(WINDOW, None, 1, 0, TOKENS, TOKENS)[0]
    for i in range(TOKENS):
        for j in range(TOKENS):
            if window[i, j] or 0 in (i, j):
                color = COLORS["window" if window[i, j] else "global"]
                parts.append(cell(left + j * CELL, top + i * CELL, CELL, color))
    pools = POOLING.num_pools(TOKENS)
    pooled = visible_pairs(POOLED_WINDOW, POOLING, 1, 0, TOKENS, pools)[0]
    width = side / pools
    for i in range(TOKENS):
        for j in range(pools):
            if pooled[i, j]:
                parts.append(cell(second + j * width, top + i * CELL, width, COLORS["pooled"]))
    middle, other = left + side / 2, second + side / 2
    parts += [
        text(middle, 20, "level one: sliding window and global tokens", 14),
        text(middle, 38, "keys: tokens", 12),
        text(other, 20, "level two: a wider window over pooled keys", 14),
        text(other, 38, "keys: pools of κ tokens, ξ apart", 12),
        text(left + side + GAP / 2, top + side / 2, "Y →", 16),
        text(left, top + side + 22, "queries run down, keys across; output = W_o (Y + Z)", 12, "start"),
    ]
    for n, (name, label) in enumerate([("window", "window w1"), ("global", "global"), ("pooled", "pooled window w2")]):
        x = second + n * 100
        parts.append(cell(x, top + side + 13, CELL + 1, COLORS[name]))
        parts.append(text(x + 14, top + side + 22, label, 12, "start"))
    width, height = second + side + 30, top + side + 36
    write("two_levels.svg", parts, width, height)


def context_parallel() -> None:
    """What three processes hold of one document in each level, and which of it comes from another."""
    tokens, left, top, row = 72, 124, 40, 30
    window, pooled_window = Window(5), Window(14)
    shards = [range(first, first + 24) for first in range(0, tokens, 24)]
    everything = range(POOLING.num_pools(tokens))
    own, near, seen_by_all, pooled = "#1f6f8b", "#8fc1d4", COLORS["global"], COLORS["pooled"]
    parts = [text(left + tokens * CELL / 2, 20, "what each process holds of one document", 14)]
    for rank, part in enumerate(shards):
        y = top + rank * (row + 22)
        parts.append(text(left - 8, y + 8, f"process {rank}: tokens", 12, "end"))
        parts.append(text(left - 8, y + row - 6, "pools", 12, "end"))
        straddled = tokens_of(POOLING, pools_of(POOLING, part), part, tokens)
        held = {0: seen_by_all} | dict.fromkeys([*tokens_seen(window, 1, part, tokens), *straddled], near)
        held |= dict.fromkeys(part, own) | {0: seen_by_all}
        parts += [cell(left + token * CELL, y, CELL, held.get(token, "#eef1f3")) for token in range(tokens)]
        pools = dict.fromkeys(pools_seen(pooled_window, POOLING, part, everything), pooled)
        pools |= dict.fromkeys(pools_of(POOLING, part), own)
        wide = POOLING.key_stride * CELL
        for pool in everything:
            parts.append(cell(left + pool * wide, y + row - 14, wide, pools.get(pool, "#eef1f3")))
    bottom = top + 3 * (row + 22)
    labels = {own: "own", near: "from a neighbour: within w1, or of a pool that straddles", pooled: "within w2"}
    x = left
    for color, label in {**labels, seen_by_all: "global, on all"}.items():
        parts += [cell(x, bottom - 20, CELL, color), text(x + 14, bottom - 11, label, 12, "start")]
        x += 30 + 6.2 * len(label)
    write("context_parallel.svg", parts, left + tokens * CELL + 20, bottom + 4)


if __name__ == "__main__":
    two_levels()
    context_parallel()

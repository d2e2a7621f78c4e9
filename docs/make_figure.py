"""Draw two_levels.svg from the package's own definition of who sees whom.

python docs/make_figure.py
"""

from __future__ import annotations

from pathlib import Path

from fairseq_poolingformer.attention import Pooling, Window, visible_pairs

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


if __name__ == "__main__":
    two_levels()

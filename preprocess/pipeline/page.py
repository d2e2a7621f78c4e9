"""The report of a corpus as a text and as one page of HTML with pictures, which needs nothing else."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.whole_file import write_lines

from .data_folder import REPORTS
from .findings import Finding, lengths_of
from .look import SplitLook
from .report import Made

TEXT, PAGE = REPORTS
_BARS, _WIDTH, _HEIGHT = 40, 560, 120
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow-x:auto;font-size:13px}"
    "li{margin-bottom:.7em}b{color:#a00}svg{display:block;margin:.3em 0 1.5em}svg text{font:11px sans-serif}"
)


def as_text(name: str, found: Sequence[Finding]) -> list[str]:
    """The findings as lines."""
    if not found:
        return [f"{name}: nothing suspicious was found"]
    head = f"{name}: {len(found)} finding{'s' * (len(found) > 1)}"
    lines = (line for one in found for line in (f"- {one.kind}: {one.text}", f"  To do: {one.remedy}."))
    return [head, *map(_printable, lines)]


def write(
    folder: Path, name: str, table: str, found: Sequence[Finding], seen: Mapping[str, SplitLook], made: Made | None
) -> None:
    """Write both files.

    Args:
        folder: where to.
        name: of the corpus.
        table: the table of its data folder; empty where there is none.
        found: the findings.
        seen: what they were found in.
        made: the data folder, where it could be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / TEXT, [*as_text(name, found), "", *_printable(table).splitlines()])
    items = "".join(
        f"<li><b>{_safe(one.kind)}</b>: {_safe(one.text)}.<br>To do: {_safe(one.remedy)}.</li>" for one in found
    )
    pictures = "".join(_pictures(seen, made))
    write_lines(
        folder / PAGE,
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(name)}: a look at the data</title>',
            f"<style>{_STYLE}</style><h1>{_safe(name)}: a look at the data</h1>",
            f"<ol>{items}</ol>" if items else "<p>Nothing suspicious was found.</p>",
            f"<pre>{_safe(table)}</pre>{pictures}</html>",
        ],
    )


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _safe(text: str) -> str:
    return html.escape(_printable(text))


def _pictures(seen: Mapping[str, SplitLook], made: Made | None) -> list[str]:
    pictures = []
    for split, one in seen.items():
        if not len(one.inputs):
            continue
        if made is not None and split in made.splits:
            lengths, unit, limits = lengths_of(made, split), "tokens", made.lengths
        else:
            lengths, unit, limits = np.asarray(one.sizes), "characters", ()
        pictures.append(_histogram(f"{split}: {unit} of the {len(lengths):,} documents", lengths, limits))
        outputs = np.asarray(one.output_sizes)
        if outputs.all() and not one.labels:
            ratio = np.asarray(one.sizes) / outputs
            pictures.append(_histogram(f"{split}: how many times longer documents are than summaries", ratio, (1,)))
        if one.labels:
            pictures.append(_bars(f"{split}: labels", one.labels.most_common(20)))
    return pictures


def _histogram(title: str, values: np.ndarray, limits: Sequence[float]) -> str:
    """Bars over a logarithmic axis, with a line at each limit that lies on it."""
    values = np.maximum(values, 1e-2)
    low, high = float(values.min()), max(float(values.max()), float(values.min()) * 1.1)
    counts, _ = np.histogram(np.log(values), _BARS, (np.log(low), np.log(high)))

    def place(value: float) -> float:
        return _WIDTH * float(np.log(value / low) / np.log(high / low))

    width = _WIDTH / _BARS
    bars = "".join(
        f'<rect x="{number * width:.1f}" y="{_HEIGHT * (1 - count / counts.max()):.1f}" width="{width - 1:.1f}" '
        f'height="{_HEIGHT * count / counts.max():.1f}" fill="#48a"/>'
        for number, count in enumerate(counts.tolist())
    )
    lines = "".join(
        f'<line x1="{place(limit):.1f}" x2="{place(limit):.1f}" y1="0" y2="{_HEIGHT}" stroke="#a00"/>'
        f'<text x="{place(limit) + 3:.1f}" y="10" fill="#a00">{limit:,}</text>'
        for limit in limits
        if low < limit < high
    )
    ends = "".join(
        f'<text x="{x}" y="{_HEIGHT + 14}" text-anchor="{anchor}">{value:,.{0 if high > 20 else 1}f}</text>'
        for x, anchor, value in ((0, "start", low), (_WIDTH, "end", high), (_WIDTH / 2, "middle", (low * high) ** 0.5))
    )
    return f"<h3>{_safe(title)}</h3>{_svg(_HEIGHT + 18, bars + lines + ends)}"


def _bars(title: str, counts: Sequence[tuple[str, int]]) -> str:
    most = max(count for _, count in counts)
    rows = "".join(
        f'<rect x="150" y="{18 * row}" width="{(_WIDTH - 220) * count / most:.1f}" height="14" fill="#48a"/>'
        f'<text x="145" y="{18 * row + 11}" text-anchor="end">{_safe(name[:24])}</text>'
        f'<text x="{155 + (_WIDTH - 220) * count / most:.1f}" y="{18 * row + 11}">{count:,}</text>'
        for row, (name, count) in enumerate(counts)
    )
    return f"<h3>{_safe(title)}</h3>{_svg(18 * len(counts), rows)}"


def _svg(height: int, content: str) -> str:
    return f'<svg role="img" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">{content}</svg>'

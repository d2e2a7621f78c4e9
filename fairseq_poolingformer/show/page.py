"""A :class:`~.looks.Look` as one HTML page: the text, the weights, and the script that lays one over the other.

The page loads nothing; its policy forbids it to.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.show.looks import CROSS, ONE, TITLES, TWO, Look, Passages

HERE = Path(__file__).parent
UNIT = 1000  # weights are whole thousandths; those of less than half a thousandth are left out
EXPLAINED = {
    CROSS: "What the model looked at in the document while it wrote a sentence of the summary.",
    ONE: "What a sentence looks at through its sliding window and at global tokens.",
    TWO: "What a sentence looks at through the wider window over pooled keys; a share is spread over the pool.",
}


class Page(str):
    """An HTML page, which a notebook shows in a frame."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" style="width:100%;height:85vh;border:0" title="attention"></iframe>'


def page(look: Look) -> Page:
    """Return the page of what a model looked at: no other files, no network, a few MB for 16,384 tokens."""
    text = (HERE / "page.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(look.title),
        "model": escape(look.model),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "script": (HERE / "page.js").read_text(encoding="utf-8"),
        "data": json.dumps(_data(look), ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/"),
        "views": "".join(
            f'<button type="button" role="tab" data-view="{kind}" aria-selected="false" tabindex="-1">'
            f"{TITLES[kind]}</button>"
            for kind in look.views
        ),
        "summary": "" if look.summary is None else _summary(look.summary),
        "document": _document(look),
    }
    before, *pieces = text.split("{{")
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        before += parts[name] + rest
    return Page(before)


def _summary(summary: Passages) -> str:
    sentences = "".join(
        f'<li><button type="button" data-row="{number}">{escape(summary[number])}</button></li>'
        for number in range(len(summary))
    )
    return f'<h2 id="summary">Summary</h2><ol class="sentences">{sentences}</ol>'


def _document(look: Look) -> str:
    """Return the passages, each an element, with the white space between them."""
    document, parts, end = look.document, [], 0
    for number, (start, stop) in enumerate(document.spans):
        gap = document.text[end:start]
        if start >= look.read and number and document.spans[number - 1][0] < look.read:
            parts.append('<p class="cut">The model did not read further.</p>')
        parts.append("<br>" * min(gap.count("\n"), 2) or " ")
        unread = " unread" if start >= look.read else ""
        parts.append(f'<span class="passage{unread}" id="p{number}" tabindex="-1">{escape(document[number])}</span>')
        end = stop
    return "".join(parts)


def _data(look: Look) -> dict[str, Any]:
    """Return what the script reads: weights as lists of column, thousandths, column, thousandths …"""
    views = {
        kind: {
            "title": TITLES[kind],
            "text": EXPLAINED[kind],
            "rows": "summary" if kind == CROSS else "document",
            "layers": view.layers,
            "weights": [_sparse(layer) for layer in (view.weights.mean(0), *view.weights)],
        }
        for kind, view in look.views.items()
    }
    data: dict[str, Any] = {"views": views, "passages": len(look.document)}
    if look.summary is not None and look.piece_weights is not None:
        group = look.summary.of_characters(look.pieces[:, 0]).tolist() if len(look.pieces) else []
        texts = [look.summary.text[start:end] for start, end in look.pieces.tolist()]
        data["pieces"] = {"texts": texts, "rows": group, "weights": _sparse(look.piece_weights)}
    data["words"] = [_word(look, number) for number in range(len(look.words))]
    return data


def _word(look: Look, number: int) -> dict[str, Any]:
    """A chosen word: its text, passage and tokens, and the tokens it looks at by kind and layer; offsets in UTF-16."""
    word, document = look.words[number], look.document
    start, end = word.span
    home = int(document.of_characters(np.array([start]))[0])
    levels = {}
    for kind, weights in word.levels.items():
        levels[kind] = [_sparse(layer[None])[0] for layer in (weights.mean(0), *weights)]
    positions = np.flatnonzero((look.tokens[:, 0] < end) & (look.tokens[:, 1] > start)).tolist()
    needed = sorted({*positions, *(index for layers in levels.values() for layer in layers for index in layer[::2])})
    tokens = {}
    for index, passage in zip(needed, document.of_characters(look.tokens[needed, 0]).tolist(), strict=True):
        first, last = (document.spans[passage][0], document.spans[passage][1])
        begin, stop = (min(max(int(place), first), last) for place in look.tokens[index])
        tokens[index] = [passage, _utf16(document.text[first:begin]), _utf16(document.text[first:stop])]
    return {"text": document.text[start:end], "passage": home, "own": positions, "levels": levels, "tokens": tokens}


def _utf16(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)


def _sparse(rows: np.ndarray) -> list[list[int]]:
    """Return for each row its columns of at least half a thousandth, each followed by its thousandths."""
    thousandths = np.rint(rows * UNIT).astype(int)
    return [[int(x) for column in np.flatnonzero(row) for x in (column, row[column])] for row in thousandths]

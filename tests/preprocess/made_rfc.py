"""Made documents in the format of Requests for Comments."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

ABSTRACT = "This memo describes how kettles whistle. " * 5
LONG = "A kettle must whistle once the water in it is hot enough for tea. " * 60
PAGE = 48  # lines of text


def make_rfc(
    number: int,
    sections: Mapping[str, str | Sequence[str]],
    abstract: str = ABSTRACT,
    obsoletes: str = "",
    pages: bool = True,
) -> str:
    """A document with front matter, a table of contents, and boilerplate.

    Args:
        number: its number.
        sections: heading -> paragraphs, which are wrapped; a paragraph with line breaks stays as it is.
        abstract: of the document; "" for none.
        obsoletes: what the first page says after Obsoletes.
        pages: whether to break it into pages.
    """
    lines = ["Network Working Group" + " " * 30 + "A. Maker", f"Request for Comments: {number}"]
    lines += [f"Obsoletes: {obsoletes}"] * bool(obsoletes)
    lines += ["", "                     The Kettle Protocol", "", "Status of This Memo", "", "   Made up.", ""]
    lines += ["Copyright Notice", "", "   Copyright (C) Nobody (2001).  All Rights Reserved.", ""]
    if abstract:
        lines += ["Abstract", "", *wrapped(abstract), ""]
    lines += ["Table of Contents", "", *(f"   {heading} ........... {n}" for n, heading in enumerate(sections)), ""]
    lines += ["   9.  References ............. 7", ""]
    for heading, text in sections.items():
        lines += [heading, ""]
        for paragraph in [text] if isinstance(text, str) else text:
            lines += [*(paragraph.split("\n") if "\n" in paragraph else wrapped(paragraph)), ""]
    lines += ["Authors' Addresses", "", "   A. Maker, Kettle Road", ""]
    lines += ["Full Copyright Statement", "", "   Copyright (C) Nobody (2001).  All Rights Reserved.", ""]
    return "\n".join(paged(lines, number) if pages else lines) + "\n"


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 72, initial_indent="   ", subsequent_indent="   ")


def paged(lines: Sequence[str], number: int) -> list[str]:
    out = []
    for page, first in enumerate(range(0, len(lines), PAGE), 1):
        out += [
            *lines[first : first + PAGE],
            "",
            "",
            f"Maker                  Standards Track               [Page {page}]",
        ]
        out += ["\f", f"RFC {number}                 Kettle Protocol               May 2001", "", ""]
    return out


def write_rfcs(folder: Path, documents: Mapping[int, str]) -> Path:
    """Write documents as the packages install them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in documents.items():
        (folder / f"rfc{number}.txt").write_text(text, encoding="utf-8")
    return folder

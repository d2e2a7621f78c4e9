"""CoNLL-2003's columns: a word and its label a line, a blank line after a sentence, -DOCSTART- before a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

_DOCUMENT = b"-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")


def decoded(line: bytes, number: int, problem: str = "") -> tuple[str, str]:
    """A line as text, and why it cannot be used, unless there is a problem already."""
    try:
        return line.decode("utf-8"), problem
    except UnicodeDecodeError as error:
        found = f"not UTF-8: byte {error.start} of line {number}, {error.reason}"
        return line.decode("utf-8", "replace"), problem or f"{found}; convert Latin-1 with iconv -f LATIN1 -t UTF-8"


def documents(content: BinaryIO, name: str, max_bytes: int) -> Iterator[tuple[int, dict[str, Any] | str | None]]:
    """Yield the first line of each document, and the document, why there is none, or None for too many bytes.

    A document has ``id``, ``tokens``, ``labels`` (the first and the last column) and ``sentences``, how many tokens
    each has. Where no -DOCSTART- has come yet, every sentence is a document.
    """
    tokens: list[str] = []
    labels: list[str] = []
    sentences: list[int] = []
    has_marks, first, size, problem = False, 1, 0, ""

    def found() -> tuple[int, dict[str, Any] | str | None]:
        sizes = [end - start for start, end in zip([0, *sentences], sentences, strict=False)]
        fields = {"id": f"{name.rpartition('/')[2]}:{first}", "tokens": tokens, "labels": labels, "sentences": sizes}
        return first, None if size > max_bytes else problem or fields

    for number, line in enumerate(iter(lambda: content.readline(max_bytes + 1), b""), 1):
        words = line.split() if size <= max_bytes else line[: len(_DOCUMENT)].split()
        if not words or words[0] == _DOCUMENT:
            if len(tokens) > (sentences or [0])[-1]:
                sentences.append(len(tokens))
            if size and (words or not has_marks):
                yield found()
                tokens, labels, sentences, size, problem = [], [], [], 0, ""
            has_marks = has_marks or bool(words)
            continue
        first = first if size else number
        size += len(line)
        text, problem = decoded(line, number, problem)
        if size > max_bytes:
            tokens, labels, sentences = [], [], []
        elif len(columns := _BLANKS.split(text.strip(" \t\r\n"))) < 2:
            problem = problem or f"no label: line {number} has one column, {columns[0][:60]!r}"
        else:
            tokens.append(columns[0])
            labels.append(columns[-1])
    if size:
        sentences += [len(tokens)] * (len(tokens) > (sentences or [0])[-1])
        yield found()

"""Rows of CSV and TSV as objects of JSON."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from fairseq_poolingformer.text.input_files import TOO_LONG, decoded

Rows = Iterator[tuple[int, bytes | str | None]]  # the line of each row, and the row, or why there is none
_DELIMITERS = ",;\t|"
_AS_TEXT = "write the rows as JSON lines if quotation marks are part of the text"


class _Lines:
    """The lines of a file as text, for the csv module; a row has several where a quoted field has."""

    def __init__(self, content: BinaryIO, name: str, max_bytes: int) -> None:
        self._content, self._name, self._max_bytes = content, name, max_bytes
        self.number, self.first, self._bytes, self.problem = 0, 1, 0, ""

    def start_row(self) -> None:
        self.first, self._bytes, self.problem = self.number + 1, 0, ""

    def endless(self) -> ValueError:
        return ValueError(
            f"{self._name}, line {self.first}: a quotation mark opens a field in this row and nothing closes it; close "
            f"it, or {_AS_TEXT}"
        )

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._content.readline(self._max_bytes + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self._bytes += len(line)
        if self._bytes > self._max_bytes:
            if self.number > self.first:
                raise self.endless()
            while line and not line.endswith(b"\n"):
                line = self._content.readline(self._max_bytes)
            self.problem = TOO_LONG
            return "\n"
        if self.number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        text, self.problem = decoded(line, self.number, self.problem)
        return text


def rows(content: BinaryIO, name: str, max_bytes: int, delimiter: str = "") -> Rows:
    """Yield every row of a table as an object whose keys are the columns' names."""
    head = content.peek(2**16).partition(b"\n")[0].removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    named = re.fullmatch('"?sep=(.)"?\r?', head)  # a line before the header, which tells Excel the delimiter
    delimiter = named[1] if named else delimiter or max(_DELIMITERS, key=head.count)
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes))  # the process's; _Lines has a bound of its own
    lines = _Lines(content, name, max_bytes)
    if named:
        next(lines)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    columns: list[str] = []
    while True:
        lines.start_row()
        try:
            row, problem = next(reader), ""
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise lines.endless() from None
            row, problem = [], f"broken row: {error}"
            if "expected after" in str(error):
                problem += f"; {_AS_TEXT}"
        problem = lines.problem or problem
        if delimiter == "\t" and lines.number > lines.first and not problem:
            raise ValueError(
                f"{name}, line {lines.first}: a quotation mark opens a field that ends in line {lines.number}; "
                f"{_AS_TEXT}, or save the table as CSV if line feeds are"
            )
        if not columns:
            columns = _header(row, problem, f"{name}, line {lines.first}")
            continue
        if not problem and len(row) not in (0, len(columns)):
            problem = f"ragged row: {len(row)} fields, and there are {len(columns)} columns"
        if problem:
            yield lines.first, problem
        elif row:
            yield lines.first, json.dumps(dict(zip(columns, row, strict=True))).encode()


def _header(row: list[str], problem: str, where: str) -> list[str]:
    columns = [name.strip() for name in row]
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        problem = f"two columns are called {twice!r}"
    if problem:
        raise ValueError(f"{where}: {problem}; the first row must name the columns")
    return columns

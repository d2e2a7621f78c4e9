"""Rows of CSV and TSV, and CoNLL's columns, as objects of JSON."""

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from ..pipeline.errors import InputError
from ..pipeline.records import TOO_LONG
from .reading import Reading

Found = Iterator[tuple[int, bytes | str]]  # the line of each record, and the record, or why there is none
_DELIMITERS = ",;\t|"
_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")


class _Lines:
    """The lines of a file as text, for the csv module; a row has several where a quoted field has.

    Attributes:
        number: of the last line.
        problem: why the row at hand cannot be used.
    """

    def __init__(self, content: BinaryIO, name: str, max_bytes: int) -> None:
        self._content, self._name, self._max_bytes = content, name, max_bytes
        self.number, self.first, self._bytes, self.problem = 0, 1, 0, ""

    def start_row(self) -> None:
        self.first, self._bytes, self.problem = self.number + 1, 0, ""

    def endless(self) -> InputError:
        return InputError(
            f"{self._name}, line {self.first}: a quotation mark opens a field in this row and nothing closes it; close "
            "it, or give --no-quotes if quotation marks are part of the text"
        )

    def __iter__(self) -> "_Lines":
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


def decoded(line: bytes, number: int, problem: str = "") -> tuple[str, str]:
    """A line as text, and why it cannot be used, unless there is a problem already."""
    try:
        return line.decode("utf-8"), problem
    except UnicodeDecodeError as error:
        found = f"not UTF-8: byte {error.start} of line {number}, {error.reason}"
        return line.decode("utf-8", "replace"), problem or f"{found}; convert Latin-1 with iconv -f LATIN1 -t UTF-8"


def rows(content: BinaryIO, name: str, reading: Reading, delimiter: str = "") -> Found:
    """Yield every row of a table as an object whose keys are the columns' names.

    Args:
        content: the file.
        name: of the file, for messages.
        reading: names the columns where there is no header.
        delimiter: between fields; empty for the one that the first line has most.

    Raises:
        InputError: there is no header, it names a column twice, or a quotation mark has no end.
    """
    head = content.peek(2**16).partition(b"\n")[0].decode("utf-8", "replace")
    delimiter = delimiter or max(_DELIMITERS, key=head.count)
    csv.field_size_limit(max(csv.field_size_limit(), reading.max_bytes))  # the process's; _Lines has a bound of its own
    quoting = csv.QUOTE_MINIMAL if reading.quotes else csv.QUOTE_NONE
    lines = _Lines(content, name, reading.max_bytes)
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    columns = list(reading.columns)
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
                problem += "; give --no-quotes if quotation marks are part of the text"
        problem = lines.problem or problem
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
        raise InputError(f"{where}: {problem}; the first row must name the columns, or --columns")
    return columns


def sentences(content: BinaryIO, name: str, reading: Reading) -> Found:
    """Yield every sentence of CoNLL-2003's columns: its tokens, and the last column as their labels.

    Blank lines and ``-DOCSTART-`` lie between sentences; a line has a token, perhaps other columns, and a label.
    """
    tokens, labels, first, size, problem = [], [], 1, 0, ""
    number = 0

    def found() -> tuple[int, bytes | str]:
        fields = {"id": f"{name.rpartition('/')[2]}:{first}", "tokens": tokens, "labels": labels}
        return first, problem or json.dumps(fields).encode()

    for number, line in enumerate(iter(lambda: content.readline(reading.max_bytes + 1), b""), 1):
        words = line.split() if size <= reading.max_bytes else line[:1].split()
        if not words or words[0] == _DOCUMENT.encode():
            if size:
                yield found()
            tokens, labels, size, problem = [], [], 0, ""
            continue
        first = first if size else number
        size += len(line)
        text, problem = decoded(line, number, problem)
        if size > reading.max_bytes:
            problem, tokens, labels = TOO_LONG, [], []
        elif len(columns := _BLANKS.split(text.strip(" \t\r\n"))) < 2:
            problem = problem or f"no label: line {number} has one column, {columns[0][:60]!r}"
        else:
            tokens.append(columns[0])
            labels.append(columns[-1])
    if size:
        yield found()

"""Reads JSON files of any length piece by piece.

The corpora of question answering come as one array of hundreds of megabytes, on one line or many. This module only
finds where its elements begin and end; workers parse them, and a bad one spoils no other.
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from .records import MAX_LINE_BYTES, InputError, Record, read_files

_BLOCK = 2**20
_BLANKS = b" \t\r\n\xef\xbb\xbf"  # between values; the last three bytes are the mark before some UTF-8 files
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
# What comes before a mark, and the mark: nothing where there is none yet, a quotation mark where a string is cut. Deep
# inside of a value only brackets are marks; the number bounds what the regular expression keeps in memory.
_MARK = re.compile(rb'[^"\[\]{},:]*(%b|["\[\]{},:]?)' % _STRING, re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"\[\]{}]+|%b){0,1000}((?!%b)["\[\]{}]|)' % (_STRING, _STRING), re.DOTALL)


class _Marks:
    """The brackets, commas, colons and strings of JSON, one after the other; outside of values any other text, too.

    Args:
        content: the file.
        detailed: below this depth only brackets are marks.
        longest: the most bytes of a string; None for any number.

    Attributes:
        depth: how many brackets are open after the last mark.
        buffer: a part of the file.
        start, end: where in the buffer the last mark is.
        kept: where in the buffer something begins that must stay in it; None for nothing.
    """

    def __init__(self, content: BinaryIO, detailed: int, longest: int | None = None) -> None:
        self._content, self._detailed, self._longest = content, detailed, longest
        self._line, self._counted = 1, 0  # the line of a place in the buffer
        self.depth, self.buffer, self.start, self.end = 0, b"", 0, 0
        self.kept: int | None = None

    def next(self) -> bytes:
        """Go to the next mark and return it; at the end of the file, nothing.

        Raises:
            ValueError: a string is too long.
        """
        while True:
            match = (_BRACKET if self.depth > self._detailed else _MARK).match(self.buffer, self.end)
            mark, self.start = match[1], match.start(1)
            passed, self.end = self.buffer[self.end : self.start] if self.depth == 0 else b"", self.start
            if other := passed.strip(_BLANKS):
                return other
            if mark and mark != b'"':
                self.end = match.end()
                self.depth += (mark in b"[{") - (mark in b"]}")
                return mark
            if (mark or self.end == len(self.buffer)) and not self._read():
                return b""

    def _read(self) -> bool:
        """Read a block behind what is kept and what follows the last mark; return whether there is one."""
        if self._longest is not None and len(self.buffer) - self.end > self._longest:
            raise ValueError(f"a string of more than {self._longest:,} bytes")
        keep = self.end if self.kept is None else self.kept
        # a string may be searched again: blocks that grow with it keep the time in proportion to its length
        block = self._content.read(max(_BLOCK, len(self.buffer) - keep))
        if block:
            self.line_of(keep)
            self.buffer, self.end, self._counted = self.buffer[keep:] + block, self.end - keep, 0
            self.kept = None if self.kept is None else 0
        return bool(block)

    def line_of(self, place: int) -> int:
        """The line of a place in the buffer, from 1; places must not descend."""
        self._line += self.buffer.count(b"\n", self._counted, place)
        self._counted = place
        return self._line


def read_elements(
    paths: Sequence[Path], key: str | None = None, max_element_bytes: int = MAX_LINE_BYTES
) -> Iterator[Record]:
    """Read the elements of an array from each of several plain or compressed files.

    A file may hold several such values, one after the other, as ``cat`` writes them.

    A record's ``file`` names the file and the number of the element, from 1. An element of more than
    ``max_element_bytes`` becomes a record without data.

    Args:
        paths: the files.
        key: where the file is an object, the key of the array; None where the file is the array.
        max_element_bytes: bound of an element.

    Raises:
        InputError: a file has no such array, or holds something else besides, ends too early, or is damaged.
    """
    return read_files(paths, functools.partial(_elements, key=key, max_bytes=max_element_bytes), numbered="element")


def _elements(content: BinaryIO, name: str, key: str | None, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the line and the bytes of each element."""
    what = "no JSON array" if key is None else f"no object with an array under {key!r}"
    opening, inside = (b"[", 1) if key is None else (b"{", 2)  # of a value; depth of the array's elements
    wanted = b"" if key is None else b'"%b"' % key.encode()
    marks, last_string = _Marks(content, inside), b""
    values, has_array = 0, False  # whole ones so far, and whether the one at hand has the array

    def refusal(place: int) -> InputError:
        if not values:
            return InputError(f"{name}: {what} in it")
        line = marks.line_of(place)
        return InputError(f"{name}, line {line}: neither the end of the file nor another such value; it has {values}")

    is_outside = True
    while mark := marks.next():
        if is_outside and mark != opening:
            raise refusal(marks.start)
        if key is not None and mark.startswith(b'"'):
            last_string = mark
        is_end = marks.depth == inside - 1 and mark == b"]"
        if marks.kept is not None and (is_end or (marks.depth == inside and mark == b",")):
            data = marks.buffer[marks.kept : marks.start].lstrip()
            line, data = marks.line_of(marks.start - len(data)), data.rstrip()
            if data or not is_end:
                yield line, data if len(data) <= max_bytes else None
            marks.kept = None if is_end else marks.end
        elif marks.kept is None and mark == b"[" and marks.depth == inside and last_string == wanted:
            marks.kept, has_array = marks.end, True
        is_outside = marks.depth == 0
        if is_outside:
            if not has_array:
                raise refusal(marks.start)
            values, has_array = values + 1, False
    if marks.kept is not None:
        rest = marks.buffer[marks.kept :]
        line = marks.line_of(len(marks.buffer) - len(rest.lstrip()))
        raise InputError(f"{name}: ends inside the element that begins in line {line}; fetch it again")
    if marks.depth:
        raise InputError(f"{name}: ends before the JSON in it does; fetch it again")
    if marks.end < len(marks.buffer) or not values:
        raise refusal(len(marks.buffer))


def text_members(content: BinaryIO, key: str) -> Iterator[str]:
    """Yield the texts that an object holds under a key, more than one where the key is there several times.

    Keys inside of its values do not count.

    Raises:
        ValueError: a string has no end.
    """
    marks = _Marks(content, 1, MAX_LINE_BYTES)
    name, last = b"", b""
    while mark := marks.next():
        if marks.depth == 1 and mark.startswith(b'"'):
            if last != b":":
                name = mark
            elif name == b'"%b"' % key.encode():
                yield json.loads(mark.decode("utf-8", "replace"))
        last = mark

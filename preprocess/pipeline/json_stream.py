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

from .records import MAX_LINE_BYTES, Record, read_files

_BLOCK = 2**20
_BLANKS = b" \t\r\n\xef\xbb\xbf"  # between values; the last three bytes are the mark before some UTF-8 files
_INSIDE = rb'[^"\\]*(?:\\.[^"\\]*)*'
_STRING = b'"%b"' % _INSIDE
_TO_QUOTE = re.compile(_INSIDE, re.DOTALL)
# What comes before a mark, and the mark: nothing where there is none yet, a quotation mark where a string is cut. Deep
# inside of a value only brackets are marks; the number bounds what the regular expression keeps in memory.
_MARK = re.compile(rb'[^"\[\]{},:]*(%b|["\[\]{},:]?)' % _STRING, re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"\[\]{}]+|%b){0,1000}((?!%b)["\[\]{}]|)' % (_STRING, _STRING), re.DOTALL)


class _Marks:
    """The brackets, commas, colons and strings of JSON, one after the other; outside of values any other text, too."""

    def __init__(self, content: BinaryIO, detailed: int, longest: int, refuses: bool = False) -> None:
        self._content, self._detailed, self._longest, self._refuses = content, detailed, longest, refuses
        self._line, self._counted = 1, 0  # the line of a place in the buffer
        self.depth, self.buffer = 0, b""  # brackets open after the last mark; a part of the file
        self.start, self.end = 0, 0  # of the last mark in the buffer
        self.kept: int | None = None  # where in the buffer something begins that must stay in it
        self._line_of_dropped: int | None = None  # where something begins that is too long to be kept

    def next(self) -> bytes:
        """Go to the next mark and return it; at the end of the file, nothing."""
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
        if len(self.buffer) - self.end > self._longest:
            if self._refuses:
                raise ValueError(f"a string of more than {self._longest:,} bytes")
            return self._pass_string()
        if self.kept is not None and self.end - self.kept > self._longest:
            self._drop()
            self.kept = self.end
        keep = self.end if self.kept is None else self.kept
        # a string may be searched again: blocks that grow with it keep the time in proportion to its length
        block = self._content.read(max(_BLOCK, len(self.buffer) - keep))
        if block:
            self.line_of(keep)
            self.buffer, self.end, self._counted = self.buffer[keep:] + block, self.end - keep, 0
            self.kept = None if self.kept is None else 0
        return bool(block)

    def _drop(self) -> None:
        """Note that what is kept is too long."""
        if self.kept is not None and self._line_of_dropped is None:
            rest = self.buffer[self.kept : self.end]
            self._line_of_dropped = self.line_of(self.end - len(rest.lstrip()))

    def _pass_string(self) -> bool:
        """Pass a string that is too long, and put an empty one into its place; return whether it has an end."""
        self._drop()
        self.line_of(self.end)
        rest = self.buffer[self.end + 1 :]
        while (end := _TO_QUOTE.match(rest).end()) == len(rest) or rest[end : end + 1] != b'"':
            self._line += rest.count(b"\n", 0, end)
            block = self._content.read(_BLOCK)
            rest = rest[end:] + block
            if not block:
                break
        self._line += rest.count(b"\n", 0, end)
        self.buffer, self.end, self._counted = b'""' + rest[end + 1 :], 0, 0
        self.kept = None if self.kept is None else 0
        return bool(rest)

    def take(self) -> tuple[int, bytes | None]:
        """Keep nothing any more; return the line and the bytes, up to the last mark, or None for too many bytes."""
        data = self.buffer[self.kept : self.start].lstrip()
        line, data = self._line_of_dropped or self.line_of(self.start - len(data)), data.rstrip()
        is_short = self._line_of_dropped is None and len(data) <= self._longest
        self.kept = self._line_of_dropped = None
        return line, data if is_short else None

    def line_of_kept(self) -> int:
        """The line where what is kept begins."""
        rest = self.buffer[self.kept :]
        return self._line_of_dropped or self.line_of(len(self.buffer) - len(rest.lstrip()))

    def line_of(self, place: int) -> int:
        """The line of a place in the buffer, from 1; places must not descend."""
        self._line += self.buffer.count(b"\n", self._counted, place)
        self._counted = place
        return self._line


def read_elements(
    paths: Sequence[Path], key: str | None = None, max_element_bytes: int = MAX_LINE_BYTES
) -> Iterator[Record]:
    """Read the elements of an array from files as records; one over ``max_element_bytes`` is without data."""
    # a file may hold several such values, one after the other, as cat writes them; elements count from 1
    return read_files(paths, functools.partial(elements, key=key, max_bytes=max_element_bytes), numbered="element")


def elements(content: BinaryIO, name: str, key: str | None, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the line and the bytes of each element, for :func:`read_elements`."""
    what = "no JSON array" if key is None else f"no object with an array under {key!r}"
    opening, inside = (b"[", 1) if key is None else (b"{", 2)  # of a value; depth of the array's elements
    wanted = b"" if key is None else b'"%b"' % key.encode()
    marks, last_string = _Marks(content, inside, max_bytes), b""
    values, has_array = 0, False  # whole ones so far, and whether the one at hand has the array

    def refusal(place: int) -> ValueError:
        if not values:
            return ValueError(f"{name}: {what} in it")
        line = marks.line_of(place)
        return ValueError(f"{name}, line {line}: neither the end of the file nor another such value; it has {values}")

    is_outside = True
    while mark := marks.next():
        if is_outside and mark != opening:
            raise refusal(marks.start)
        if key is not None and mark.startswith(b'"'):
            last_string = mark
        is_end = marks.depth == inside - 1 and mark == b"]"
        if marks.kept is not None and (is_end or (marks.depth == inside and mark == b",")):
            line, data = marks.take()
            if data != b"" or not is_end:
                yield line, data
            marks.kept = None if is_end else marks.end
        elif marks.kept is None and mark == b"[" and marks.depth == inside and last_string == wanted:
            marks.kept, has_array = marks.end, True
        is_outside = marks.depth == 0
        if is_outside:
            if not has_array:
                raise refusal(marks.start)
            values, has_array = values + 1, False
    if marks.kept is not None:
        line = marks.line_of_kept()
        raise ValueError(f"{name}: ends inside the element that begins in line {line}; fetch it again")
    if marks.depth:
        raise ValueError(f"{name}: ends before the JSON in it does; fetch it again")
    if marks.end < len(marks.buffer) or not values:
        raise refusal(len(marks.buffer))


def lists_of_objects(content: BinaryIO, max_bytes: int) -> list[str]:
    """The keys of the first object under which it has lists of objects."""
    marks, name, key, lists = _Marks(content, 1, max_bytes), b"", b"", []
    is_opened = False
    while mark := marks.next():
        if is_opened and mark == b"{":
            lists.append(key.decode("utf-8", "replace")[1:-1])
        is_opened = marks.depth == 2 and mark == b"["
        if marks.depth == 1 and mark.startswith(b'"'):
            name = mark
        elif marks.depth == 1 and mark == b":":
            key = name
        elif marks.depth == 0:
            break
    return lists


def text_members(content: BinaryIO, key: str) -> Iterator[str]:
    """Yield the texts that an object holds under a key, as often as it has it, without those of its values."""
    marks = _Marks(content, 1, MAX_LINE_BYTES, refuses=True)
    name, last = b"", b""
    while mark := marks.next():
        if marks.depth == 1 and mark.startswith(b'"'):
            if last != b":":
                name = mark
            elif name == b'"%b"' % key.encode():
                yield json.loads(mark.decode("utf-8", "replace"))
        last = mark

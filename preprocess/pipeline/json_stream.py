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
# a string, or where the block cuts it its quotation mark alone; brackets; commas
_BLANKS = b" \t\r\n\xef\xbb\xbf"  # between values; the last three bytes are the mark before some UTF-8 files
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_WHOLE_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]', re.DOTALL)


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
    inside = 1 if key is None else 2  # depth of the array's elements
    depth, start, line = 0, None, 1  # start: where the element begins in the buffer, None outside the array
    buffer, position, last_string = b"", 0, b""
    values, has_array = 0, False  # whole ones so far, and whether the one at hand has the array

    def refusal(end: int) -> InputError:
        if not values:
            return InputError(f"{name}: {what} in it")
        number = line + buffer.count(b"\n", 0, end)
        return InputError(f"{name}, line {number}: neither the end of the file nor another such value; it has {values}")

    while True:
        match = _TOKEN.search(buffer, position)
        is_cut = match is None or match[0] == b'"'
        end = match.start() if match else len(buffer)
        if depth == 0 and buffer[position:end].strip(_BLANKS):
            raise refusal(end)
        if is_cut:
            keep = end if start is None else start
            # the kept part may be searched again: blocks that grow with it keep the time in proportion to its length
            block = content.read(max(_BLOCK, len(buffer) - keep))
            if not block:
                break
            line += buffer.count(b"\n", 0, keep)
            buffer, position = buffer[keep:] + block, end - keep
            start = None if start is None else 0
            continue
        token, position = match[0], match.end()
        if depth == 0 and token != (b"[" if key is None else b"{"):
            raise refusal(end)
        if token in (b"[", b"{"):
            depth += 1
            opens = start is None and token == b"[" and depth == inside
            if opens and (key is None or last_string == b'"%b"' % key.encode()):
                start, has_array = position, True
        elif token in (b"]", b"}"):
            depth -= 1
        elif token != b",":
            last_string = token
        is_end = depth == inside - 1 and token == b"]"
        if start is not None and (is_end or (depth == inside and token == b",")):
            data = buffer[start:end]
            begin = start + len(data) - len(data.lstrip())
            if data.strip() or not is_end:
                data = data.strip()
                yield line + buffer.count(b"\n", 0, begin), data if len(data) <= max_bytes else None
            start = None if is_end else position
        if depth == 0:
            if not has_array:
                raise refusal(end)
            values, has_array = values + 1, False
    if start is not None:
        rest = buffer[start:]
        line += buffer.count(b"\n", 0, start + len(rest) - len(rest.lstrip()))
        raise InputError(f"{name}: ends inside the element that begins in line {line}; fetch it again")
    if depth:
        raise InputError(f"{name}: ends before the JSON in it does; fetch it again")
    if match is not None or not values:
        raise refusal(len(buffer))


def text_members(content: BinaryIO, key: str) -> Iterator[str]:
    """Yield the texts that an object holds under a key, more than one where the key is there several times.

    Keys inside of its values do not count.

    Raises:
        ValueError: a string has no end.
    """
    members = _Members(key)
    buffer = b""
    while block := content.read(max(_BLOCK, len(buffer))):
        buffer += block
        plain = _ESCAPED.sub(b"..", buffer)
        end = len(buffer) - plain.endswith(b"\\")
        if plain.count(b'"', 0, end) % 2:  # inside a string
            end = plain.rindex(b'"', 0, end)
        if members.is_open or b'"%b"' % key.encode() in plain:
            yield from members.read(buffer[:end])
        else:
            members.pass_over(plain[:end])
        buffer = buffer[end:]
        if len(buffer) > MAX_LINE_BYTES:
            raise ValueError(f"a string of more than {MAX_LINE_BYTES:,} bytes")


class _Members:
    """Where reading is in the nesting of an object."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._depth = 0
        self._name: str | None = None
        self._is_value = False

    @property
    def is_open(self) -> bool:
        """Whether the key may have been read and its value not yet."""
        return self._depth == 1 and self._name == self._key

    def pass_over(self, text: bytes) -> None:
        """Read JSON without the key, of whole strings."""
        outside = b"".join(text.split(b'"')[::2])
        self._depth += sum(map(outside.count, (b"[", b"{"))) - sum(map(outside.count, (b"]", b"}")))
        self._name, self._is_value = None, False

    def read(self, text: bytes) -> Iterator[str]:
        """Read JSON of whole strings; yield the key's texts."""
        for match in _WHOLE_TOKEN.finditer(text):
            token = match[0]
            if token in b"[{":
                self._depth += 1
            elif token in b"]}":
                self._depth -= 1
            elif self._depth != 1:
                continue
            elif token in b":,":
                self._is_value = token == b":"
            elif not self._is_value:
                self._name = json.loads(token.decode("utf-8", "replace"))
            elif self._name == self._key:
                yield json.loads(token.decode("utf-8", "replace"))

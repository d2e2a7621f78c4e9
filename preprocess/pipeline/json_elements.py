"""Reads the elements of a JSON array as records, one at a time, however long the file is.

The corpora of question answering come as one array of hundreds of megabytes, on one line or many. This module only
finds where its elements begin and end; workers parse them, and a bad one spoils no other.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from .records import MAX_LINE_BYTES, InputError, Record, open_compressed

_BLOCK = 2**20
# a string, or where the block cuts it its quotation mark alone; brackets; commas
_BLANKS = b" \t\r\n\xef\xbb\xbf"  # between values; the last three bytes are the mark before some UTF-8 files
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)


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
    for path in paths:
        with open_compressed(path) as (content, disk):
            position = 0
            for number, (line, data) in enumerate(_elements(content, str(path), key), 1):
                kept = data if len(data) <= max_element_bytes else None
                yield Record(f"{path}, element {number}", line, kept, disk.tell() - position)
                position = disk.tell()


def _elements(content: BinaryIO, name: str, key: str | None) -> Iterator[tuple[int, bytes]]:
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
                yield line + buffer.count(b"\n", 0, begin), data.strip()
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

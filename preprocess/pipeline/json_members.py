"""Reads text values of a JSON file's outermost object, however long the file is."""

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from .records import MAX_LINE_BYTES

_BLOCK = 2**20
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]', re.DOTALL)


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
        for match in _TOKEN.finditer(text):
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

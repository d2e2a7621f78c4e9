"""Elements of an XML file, one at a time: memory is that of an element, and a stranger's file declares no entities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO
from xml.parsers import expat

MAX_SIZE = 64 * 2**20  # of an element, in characters; of a tag or a comment, in bytes
_BLOCK = 2**20
_MAX_DEPTH = 1000
_MAX_BROKEN = 10_000  # elements; to begin again behind each of them takes time
_PIECE = 64  # characters that each piece of text counts besides its own, for Python's objects


@dataclass(frozen=True)
class Element:
    """An element that no other one of its tag holds.

    Attributes:
        line: where it begins, from 1.
        attributes: by name.
        parts: its text: that of each child whole, and what stands between the children.
        problem: why it cannot be used, or None; it then has no parts.
    """

    line: int
    attributes: dict[str, str]
    parts: tuple[str, ...]
    problem: str | None = None


def read_elements(content: BinaryIO, name: str, tag: str) -> Iterator[Element]:
    """Read the elements of a tag, in the order of the file.

    An element that is not XML has a problem, and reading goes on with the next one that begins.

    Args:
        content: the file.
        name: its name, for messages.
        tag: of the elements.

    Raises:
        ValueError: the file is not XML outside of such elements, ends too early, declares entities, or has a tag, a
            comment or a nesting without bounds.
    """
    reader = _Reader(name, tag)
    reader.begin()
    while block := content.read(_BLOCK):
        yield from reader.feed(block)
    yield from reader.close()


class _Reader:
    """Feeds a parser, and begins a new one behind an element that is not XML."""

    def __init__(self, name: str, tag: str) -> None:
        self._name, self._tag = name, tag
        self._is_wide = False  # two bytes a character
        self._encoding: str | None = None
        self._first = True
        self._lines = 0  # of the file, before what the parser has been given
        self._broken = 0
        self._previous = b""
        self._found: _Elements
        self._lost: bytes | None = None  # the end of what was skipped since an element that is not XML
        self._next = re.compile(rb"<" + re.escape(tag.encode()) + rb"(?=[\s/>])")

    def begin(self, inside: bool = False) -> None:
        """Begin a parser; ``inside`` the root of the one before."""
        self._parser = expat.ParserCreate(self._encoding)
        self._parser.buffer_text = True
        root = self._found.root if inside else ""
        self._found = _Elements(self._tag, self._name, self._line)
        self._parser.StartElementHandler = self._found.start
        self._parser.EndElementHandler = self._found.end
        self._parser.CharacterDataHandler = self._found.text
        self._parser.XmlDeclHandler = self._declare
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._fed = 0
        if root:
            self._give(f"<{root}>".encode(self._encoding or "utf-8"))

    def feed(self, block: bytes) -> Iterator[Element]:
        """Yield the elements that end in a block."""
        if self._first:
            self._is_wide = b"\0" in block[:4] or block[:2] in (b"\xff\xfe", b"\xfe\xff")
            self._first = False
        while block:
            if self._lost is not None:
                block = self._seek(block)
                continue
            try:
                self._give(block)
                self._previous, block = block, b""
            except expat.ExpatError as error:
                yield from self._found.take()
                yield self._element_of(error)
                block = self._after(error, block)
        yield from self._found.take()

    def close(self) -> Iterator[Element]:
        """Check that the file is whole; yield what is left."""
        if self._lost is not None:
            return
        try:
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            where = f"inside the <{self._tag}> of line {self._found.line}" if self._found.is_open else "too early"
            raise ValueError(f"{self._name}: ends {where} ({self._reason(error)}); fetch it again") from error
        yield from self._found.take()

    def _give(self, block: bytes) -> None:
        self._parser.Parse(block, False)
        self._fed += len(block)
        if self._fed - max(self._parser.CurrentByteIndex, 0) > MAX_SIZE:
            raise ValueError(f"{self._name}, line {self._line()}: a tag or a comment of more than {MAX_SIZE:,} bytes")

    def _reason(self, error: expat.ExpatError) -> str:
        return f"{expat.ErrorString(error.code)}, line {self._lines + error.lineno}"

    def _element_of(self, error: expat.ExpatError) -> Element:
        """The element in which the parser stopped."""
        self._broken += 1
        if not self._found.is_open or self._is_wide or self._broken > _MAX_BROKEN:
            raise ValueError(f"{self._name}: not XML ({self._reason(error)}); is it one whole file?") from error
        return Element(self._found.line, self._found.attributes, (), f"broken XML: {self._reason(error)}")

    def _after(self, error: expat.ExpatError, block: bytes) -> bytes:
        """Go back to where the parser stopped, and skip from there."""
        kept = self._previous + block
        stopped = min(max(self._parser.ErrorByteIndex - (self._fed - len(self._previous)), 0), len(kept))
        self._lines += error.lineno - 1
        self._lost = b""
        return kept[stopped:]

    def _seek(self, block: bytes) -> bytes:
        """Skip to the next element; return the block from there, or nothing."""
        whole = (self._lost or b"") + block
        match = self._next.search(whole, 1)  # the parser may have stopped at the element's own beginning
        if match is None:
            kept = len(self._tag) + 2
            self._lines += whole.count(b"\n", 0, -kept)
            self._lost = whole[-kept:]
            return b""
        self._lines += whole.count(b"\n", 0, match.start())
        self._lost, self._previous = None, b""
        self.begin(inside=True)
        return whole[match.start() :]

    def _line(self) -> int:
        return self._lines + self._parser.CurrentLineNumber

    def _declare(self, version: str, encoding: str | None, standalone: int) -> None:
        self._encoding = encoding

    def _refuse_entity(self, entity: str, *_: object) -> None:
        raise ValueError(
            f"{self._name}, line {self._line()}: has an entity of its own, {entity!r}, which is not read here; write "
            "its text in its place"
        )


class _Elements:
    """The handlers of a parser."""

    def __init__(self, tag: str, name: str, line_of_parser: Callable[[], int]) -> None:
        self._tag, self._name, self._line_of_parser = tag, name, line_of_parser
        self._depth = 0
        self._begun = 0  # depth of the open element, 0 where there is none
        self._size = 0
        self._parts: list[list[str]] = []
        self._finished: list[Element] = []
        self.line = 0
        self.attributes: dict[str, str] = {}
        self.root = ""  # what holds the elements

    @property
    def is_open(self) -> bool:
        return self._begun > 0

    def take(self) -> list[Element]:
        """Return the elements that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self.root = self.root or tag if self._depth == 1 and tag != self._tag else self.root
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"{self._name}, line {self._line_of_parser()}: more than {_MAX_DEPTH:,} elements nested")
        if not self._begun and tag == self._tag:
            self._begun, self._size, self._parts = self._depth, 0, [[]]
            self.line, self.attributes = self._line_of_parser(), attributes
        elif self._begun and self._depth == self._begun + 1:
            self._new_part()
        elif not self._begun and self._depth == 2:
            self._finished.append(
                Element(self._line_of_parser(), attributes, (), f"no <{self._tag}>: <{tag}> is its place")
            )

    def end(self, tag: str) -> None:
        if self._depth == self._begun:
            is_long = self._size > MAX_SIZE
            parts = () if is_long else tuple(map("".join, filter(None, self._parts)))
            problem = f"too long: more than {MAX_SIZE:,} characters" if is_long else None
            self._finished.append(Element(self.line, self.attributes, parts, problem))
            self._begun, self._parts = 0, []
        elif self._begun and self._depth == self._begun + 1:
            self._new_part()
        self._depth -= 1

    def _new_part(self) -> None:
        if self._parts[-1]:
            self._parts.append([])

    def text(self, text: str) -> None:
        if self._begun:
            self._size += len(text) + _PIECE
            if self._size <= MAX_SIZE:
                self._parts[-1].append(text)

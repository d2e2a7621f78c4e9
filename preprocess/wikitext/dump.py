"""Cuts MediaWiki's XML dumps into pages, and reads the fields of a page.

A dump is cut at ``<page>`` and ``</page>``, which occur nowhere else, since its text is escaped. Memory is therefore
bounded by one page, a broken page costs only itself, no document type definition reaches the XML parser, and each
worker parses its own pages.
"""

import functools
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

from fairseq_poolingformer.text.input_files import opened

from ..pipeline.records import Record, read_files
from .text import FILES_AND_CATEGORIES

ARTICLES, FILES, CATEGORIES = 0, 6, 14  # the keys of these namespaces in every wiki
MAX_PAGE_BYTES = 32 * 2**20  # MediaWiki saves at most 2 MiB of text; escaping may make it six times as long

_BLOCK_BYTES = 2**17
_HEAD_BYTES = 2**20
_TITLE = re.compile(rb"<title>(.*?)</title>", re.S)
_REDIRECT = re.compile(r"\s*#(?:\s*redirect|\w+\s*:?\s*\[\[[^\]\n]+\]\])", re.I)  # in the wiki's own language, too


class BrokenPage(ValueError):
    """The record is no whole page; the message says why."""


@dataclass(frozen=True)
class Site:
    """A wiki, as the beginning of its dump describes it, with the ``namespaces`` that have names, by key."""

    namespaces: dict[int, str]

    def namespace(self, title: str) -> int:
        """The key of a title's namespace."""
        prefix, colon, _ = title.partition(":")
        return next((key for key, name in self.namespaces.items() if colon and key and name == prefix), ARTICLES)

    @property
    def hidden_prefixes(self) -> frozenset[str]:
        """The prefixes, in lower case, of links that show no text in their place."""
        names = (self.namespaces.get(key, "").lower() for key in (FILES, CATEGORIES))
        return FILES_AND_CATEGORIES.union(filter(None, names))


@dataclass(frozen=True)
class Page:
    """A page of a dump; ``namespace`` is a key of :attr:`Site.namespaces`."""

    title: str
    namespace: int
    is_redirect: bool
    wikitext: str


def read_pages(paths: Sequence[Path], max_page_bytes: int = MAX_PAGE_BYTES) -> Iterator[Record]:
    """Read the pages of dumps as records; one that is too long or cut off is what :func:`parse_page` refuses."""
    return read_files(paths, functools.partial(_pages, max_page_bytes=max_page_bytes))


def _pages(dump: BinaryIO, name: str, max_page_bytes: int) -> Iterator[tuple[int, bytes]]:
    cutter = _Cutter(dump)
    while cutter.skip_to(b"<page>"):
        line, data = cutter.line, cutter.take(b"</page>", max_page_bytes)
        yield line, data if data.endswith(b"</page>") else data[:_BLOCK_BYTES]


def read_site(path: Path) -> Site:
    """Read the description of the wiki at the beginning of a dump."""
    with opened(path) as dump:
        head = dump.read(_HEAD_BYTES).partition(b"<page>")[0]
    start, end = head.find(b"<siteinfo"), head.find(b"</siteinfo>")
    if b"<mediawiki" not in head or start < 0 or end < 0:
        raise ValueError(
            f"{path}: no MediaWiki dump: it does not begin with <mediawiki> and <siteinfo>. Give a file such as "
            "enwiki-latest-pages-articles.xml.bz2"
        )
    try:
        site = ElementTree.fromstring(head[start : end + len(b"</siteinfo>")])
        namespaces = {int(name.get("key", "")): name.text or "" for name in site.iter("namespace")}
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path}: broken <siteinfo>: {error}") from error
    return Site(namespaces)


def title_of(record: Record) -> str:
    """The title of a page that is not yet parsed; empty where it has none."""
    match = _TITLE.search(record.data[:_BLOCK_BYTES])
    return html.unescape(match.group(1).decode("utf-8", "replace")) if match else ""


def parse_page(record: Record, site: Site) -> Page:
    """Parse the fields of a page, with the text of its last revision."""
    if not record.data.endswith(b"</page>"):
        raise BrokenPage(
            "page without end: the dump is cut off there, or the page is longer than --max-page-bytes allows"
        )
    try:
        page = ElementTree.fromstring(record.data)
    except ElementTree.ParseError as error:
        line, column = error.position
        place = f"line {record.line + line - 1}, column {column}"
        raise BrokenPage(f"broken XML: {place}: {str(error).partition(':')[0]}") from error
    title = page.findtext("title")
    if not title:
        raise BrokenPage("page without title: <title> is missing or empty")
    wikitext = next((text.text or "" for text in reversed(page.findall("revision/text"))), None)
    if wikitext is None:
        raise BrokenPage("page without text: no <revision> has <text>")
    namespace = page.findtext("ns")
    if namespace is None:  # dumps before export-0.6 have neither <ns> nor <redirect>
        return Page(title, site.namespace(title), _REDIRECT.match(wikitext) is not None, wikitext)
    if not namespace.isdecimal():
        raise BrokenPage(f"page without namespace: <ns> holds {namespace!r}, not a number")
    return Page(title, int(namespace), page.find("redirect") is not None, wikitext)


class _Cutter:
    """Cuts a stream at marks. ``line`` is the line number, from 1, of the place reached."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._buffer = b""
        self.line = 1

    def skip_to(self, mark: bytes) -> bool:
        """Skip everything before the next mark; return whether there is one."""
        for piece in self._until(mark):
            self.line += piece.count(b"\n")
        return self._buffer.startswith(mark)

    def take(self, mark: bytes, max_bytes: int) -> bytes:
        """Return everything through the next mark, or the first ``max_bytes`` of it; without a mark, the rest."""
        taken = bytearray()
        for piece in self._until(mark):
            self.line += piece.count(b"\n")
            taken += piece[: max(0, max_bytes - len(taken))]
        end, self._buffer = self._buffer[: len(mark)], self._buffer[len(mark) :]
        return bytes(taken + end[: max(0, max_bytes - len(taken))])

    def _until(self, mark: bytes) -> Iterator[bytes]:
        """Yield what precedes the next mark, piece by piece; then the buffer begins with the mark, or is empty."""
        while (end := self._buffer.find(mark)) < 0:
            block = self._stream.read(_BLOCK_BYTES)
            whole = len(self._buffer) - (len(mark) - 1 if block else 0)  # the mark may have begun in what is left
            if whole > 0:
                yield self._buffer[:whole]
                self._buffer = self._buffer[whole:]
            if not block:
                return
            self._buffer += block
        yield self._buffer[:end]
        self._buffer = self._buffer[end:]

"""Matt Mahoney's cleaning of a MediaWiki dump to 27 symbols, as of text8: a to z and single spaces.

His page about the test data (mattmahoney.net/dc/textdata.html) has the rules. They work on the text between one ``>``
and the next. In a dump that is a page's whole wikitext, whose own ``<`` and ``>`` are entities. The shortcomings of the
rules stay, because the result must be text8 byte for byte.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

_MAX_RECORD_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20

_LAST_TAG = re.compile(rb"<.*>")  # greedy, within a line
# in this order; each rule works on the result of the one before
_RULES = (
    (re.compile(rb"&amp;"), b"&"),
    (re.compile(rb"&lt;"), b"<"),
    (re.compile(rb"&gt;"), b">"),
    (re.compile(rb"<ref[^<]*</ref>"), b""),
    (re.compile(rb"<[^>]*>"), b""),
    (re.compile(rb"\[http:[^\] ]*"), b"["),  # the text of an external link stays
    (re.compile(rb"\|thumb", re.I), b""),
    (re.compile(rb"\|left", re.I), b""),
    (re.compile(rb"\|right", re.I), b""),
    (re.compile(rb"\|\d+px", re.I), b""),
    (re.compile(rb"\[\[image:[^\[\]]*\|", re.I), b""),  # the caption of an image stays
    (re.compile(rb"\[\[category:([^|\]]*)[^\]]*\]\]", re.I), rb"[[\1]]"),
    (re.compile(rb"\[\[[a-z\-]*:[^\]]*\]\]"), b""),  # links to other languages
    (re.compile(rb"\[\[[^|\]]*\|"), b"[["),  # the text of an internal link stays
    (re.compile(rb"\{\{[^}]*\}\}"), b""),
    (re.compile(rb"\{[^}]*\}"), b""),
    (re.compile(rb"[\[\]]"), b""),
    (re.compile(rb"&[^;]*;"), b" "),
)
_REDIRECT = re.compile(rb"#redirect", re.I)
_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGIT = re.compile(rb"[0-9]")
_SPELLED = {str(digit).encode(): f" {name} ".encode() for digit, name in enumerate(_NAMES)}
_OTHERS = re.compile(rb"[^a-z]+")


def clean(dump: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the clean text of a dump, page by page; each page begins with a space."""
    in_text, found = False, False
    for record in _records(dump, name):
        if b"<text " in record:
            in_text = found = True
        if in_text and _REDIRECT.search(record):
            in_text = False
        if in_text:
            in_text = b"</text>" not in record
            yield _clean_record(record)
    if not found:
        raise ValueError(f"{name}: no <text> element in it; --text8 reads a MediaWiki dump (XML), such as enwik9")


def _records(dump: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the text up to and with each ``>``; the last record may lack it."""
    rest = b""
    while block := dump.read(_BLOCK_BYTES):
        *whole, rest = (rest + block).split(b">")
        yield from (record + b">" for record in whole)
        if len(rest) > _MAX_RECORD_BYTES:
            raise ValueError(f"{name}: {len(rest):,} bytes without any >; --text8 reads a MediaWiki dump (XML)")
    if rest:
        yield rest


def _clean_record(record: bytes) -> bytes:
    text = _LAST_TAG.sub(b"", record, count=1)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _DIGIT.sub(lambda digit: _SPELLED[digit[0]], b" " + text.lower() + b" ")
    return _OTHERS.sub(b" ", text)[:-1]

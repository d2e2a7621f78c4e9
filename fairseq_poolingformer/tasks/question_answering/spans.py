"""The place of an answer in its document."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_poolingformer.text.json_values import as_object, integer_of


@dataclass(frozen=True)
class Span:
    """A piece of a document, half-open, in bytes, in tokens or in both; -1 where an offset is not known.

    Natural Questions counts bytes of the HTML and its own document tokens; TyDi QA counts UTF-8 bytes of the plain
    text and has no tokens.
    """

    start_byte: int = -1
    end_byte: int = -1
    start_token: int = -1
    end_token: int = -1

    @property
    def has_bytes(self) -> bool:
        """Whether both byte offsets are known."""
        return self.start_byte >= 0 and self.end_byte >= 0

    @property
    def has_tokens(self) -> bool:
        """Whether both token offsets are known."""
        return self.start_token >= 0 and self.end_token >= 0

    @property
    def is_null(self) -> bool:
        """Whether this is no answer."""
        return not (self.has_bytes or self.has_tokens)

    def matches(self, other: Span) -> bool:
        """Whether both are the same piece, by bytes or by tokens: one unit that both know and agree in is enough."""
        by_bytes = (self.start_byte, self.end_byte) == (other.start_byte, other.end_byte)
        by_tokens = (self.start_token, self.end_token) == (other.start_token, other.end_token)
        return (self.has_bytes and by_bytes) or (self.has_tokens and by_tokens)


NO_SPAN = Span()


def natural_questions_span(value: object, where: str) -> Span:
    """Read the span of Natural Questions' four keys; bytes or tokens that are missing are -1.

    Raises:
        ValueError: naming ``where``, if the offsets are no span.
    """
    record = as_object(value, where)
    keys = ("start_byte", "end_byte", "start_token", "end_token")
    offsets = [integer_of(record, key, -1) for key in keys]
    for start, end in (offsets[:2], offsets[2:]):
        _check_offsets(where, start, end)
        if 0 <= start == end:
            raise ValueError(f"{where}: start and end are equal; ends are exclusive, so the span is empty")
    return Span(*offsets)


def tydiqa_span(value: object, where: str, start_key: str, end_key: str) -> Span:
    """Read the span of TyDi QA's two keys, which gold data and predictions name differently.

    Raises:
        ValueError: naming ``where``, if the offsets are no span. The official evaluation allows an empty one.
    """
    record = as_object(value, where)
    start, end = integer_of(record, start_key), integer_of(record, end_key)
    _check_offsets(where, start, end)
    return Span(start, end)


def _check_offsets(where: str, start: int, end: int) -> None:
    if (start < 0) != (end < 0):
        raise ValueError(f"{where}: start {start}, end {end}: no answer is -1 and -1")
    if start > end:
        raise ValueError(f"{where}: start {start} is after end {end}")

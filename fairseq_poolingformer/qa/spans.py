"""Where an answer stands in its document."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A piece of a document, half-open, in bytes, in tokens or in both; -1 where it is not known.

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

"""Turns wikitext into the prose that a reader sees. This module knows neither files nor dumps.

mwparserfromhell cuts wikitext into tokens. Its tree would take ten times as long, so this module walks the tokens.
"""

import functools
import html
import re

from mwparserfromhell.parser import Parser, tokens

from .lines import BLOCK_TAGS, DROPPED_TAGS, HEADING, PROTECTED, REMOVED, clean_lines
from .renderers import RAISED, Parameters
from .templates import find_renderer

FILES_AND_CATEGORIES = frozenset({"file", "image", "category"})  # every language has these names

_is_dropped = re.compile(DROPPED_TAGS).fullmatch
_is_block = re.compile(BLOCK_TAGS).fullmatch
_BEFORE_PUNCTUATION = re.compile(r"[,;:!?)]|\.(?!\d)")
_EXPONENT = re.compile(r"[+\-−–]?\d+")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
_NOT_LANGUAGES = frozenset({"doi", "hdl", "mw", "rfc", "tw", "toc"})
_MEDIA = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|og[agv]|webm|webp|pdf|djvu|midi?|xcf|flac|wav|mp3|stl)\s*$", re.I)


def plain_text(
    wikitext: str,
    hidden_prefixes: frozenset[str] = FILES_AND_CATEGORIES,
    left_out_sections: frozenset[str] = frozenset(),
) -> str:
    """Turn a page into its prose, a line for each paragraph, heading or list item; links become their text."""
    stream = Parser()._tokenizer.tokenize(wikitext, 0, True)  # True: leaves '' and ''' in the text
    text = _Walk(stream, hidden_prefixes).text(0, len(stream))
    return clean_lines("".join(text), left_out_sections)


class _Walk:
    """Visits tokens once; ``_kinds`` are their types."""

    def __init__(self, stream: list[tokens.Token], hidden_prefixes: frozenset[str]):
        self._tokens = stream
        self._kinds = list(map(type, stream))
        self._hidden_prefixes = hidden_prefixes
        self._visit = {
            tokens.TemplateOpen: self._template,
            tokens.ArgumentOpen: self._argument,
            tokens.WikilinkOpen: self._wikilink,
            tokens.ExternalLinkOpen: self._external_link,
            tokens.HTMLEntityStart: self._entity,
            tokens.HeadingStart: self._heading,
            tokens.HeadingEnd: self._heading_end,
            tokens.CommentStart: self._comment,
            tokens.TagOpenOpen: self._tag,
            tokens.TagOpenClose: self._closing_tag,
        }

    def text(self, start: int, end: int) -> list[str]:
        """The text of the tokens start, …, end − 1."""
        out: list[str] = []
        position, kinds, visit, is_text = start, self._kinds, self._visit, tokens.Text
        while position < end:
            kind = kinds[position]
            if kind is is_text:
                out.append(self._tokens[position]["text"])
            elif kind in visit:
                position = visit[kind](position, out)
                continue
            position += 1
        return out

    def _find(self, position: int, *kinds: type) -> int:
        """The position of the first token of these kinds, from ``position`` on."""
        while self._kinds[position] not in kinds:
            position += 1
        return position

    def _after(self, position: int, opening: type, closing: tuple[type, ...]) -> int:
        """The position after the token that closes the one at ``position``."""
        kinds, depth = self._kinds, 1
        while depth:
            position += 1
            kind = kinds[position]
            if kind is opening:
                depth += 1
            elif kind in closing:
                depth -= 1
        return position + 1

    def _template(self, position: int, out: list[str]) -> int:
        end = self._after(position, tokens.TemplateOpen, (tokens.TemplateClose,))
        name_end = self._find(position, tokens.TemplateParamSeparator, tokens.TemplateClose)
        name = "".join(self.text(position + 1, name_end))
        render = find_renderer(name)
        out.append((render and render(self._parameters(name_end, end - 1))) or REMOVED)
        return end

    def _parameters(self, position: int, end: int) -> Parameters:
        """The texts of a template's parameters; the first one begins after the separator at ``position``."""
        values: Parameters = {}
        depth, number, start, name = 0, 0, position + 1, None
        for here in range(position + 1, end + 1):
            kind = self._kinds[here]
            if depth == 0 and (kind is tokens.TemplateParamSeparator or here == end):
                text = "".join(self.text(start, here))
                number += name is None
                values[str(number) if name is None else name] = text if name is None else text.strip()
                start, name = here + 1, None
            elif depth == 0 and kind is tokens.TemplateParamEquals:
                start, name = here + 1, "".join(self.text(start, here)).strip()
            depth += (kind is tokens.TemplateOpen) - (kind is tokens.TemplateClose)
        return values

    def _argument(self, position: int, out: list[str]) -> int:
        out.append(REMOVED)
        return self._after(position, tokens.ArgumentOpen, (tokens.ArgumentClose,))

    def _wikilink(self, position: int, out: list[str]) -> int:
        end = self._find(position + 1, tokens.WikilinkSeparator, tokens.WikilinkClose)
        target = "".join(self.text(position + 1, end)).strip()
        if self._is_hidden(target):
            out.append(REMOVED)
            return self._after(position, tokens.WikilinkOpen, (tokens.WikilinkClose,))
        if tokens.WikilinkClose in self._kinds[end : end + 2]:  # without a label, or with an empty one
            out.append(target.lstrip(":").replace("_", " "))
        return end + 1

    def _is_hidden(self, target: str) -> bool:
        prefix, colon, _ = target.partition(":")
        if not colon or not prefix:
            return False
        prefix = prefix.strip().replace("_", " ")
        if prefix.lower() in self._hidden_prefixes or _MEDIA.search(target):
            return True
        return _LANGUAGE.fullmatch(prefix) is not None and prefix not in _NOT_LANGUAGES

    def _external_link(self, position: int, out: list[str]) -> int:
        if not self._tokens[position].brackets:
            return position + 1
        end = self._find(position + 1, tokens.ExternalLinkSeparator, tokens.ExternalLinkClose)
        if self._kinds[end] is tokens.ExternalLinkClose:
            out.append(REMOVED)
        return end + 1

    def _entity(self, position: int, out: list[str]) -> int:
        end = self._find(position, tokens.HTMLEntityEnd)
        name = self._tokens[end - 1]["text"]
        if self._kinds[end - 2] is not tokens.HTMLEntityStart:
            name = "#" + (self._tokens[end - 2].char or "") + name
        out.append(_character(name))
        return end + 1

    def _heading(self, position: int, out: list[str]) -> int:
        out.append(f"\n{HEADING}{self._tokens[position].level}")
        return position + 1

    def _heading_end(self, position: int, out: list[str]) -> int:
        out.append("\n")
        return position + 1

    def _comment(self, position: int, out: list[str]) -> int:
        return self._find(position, tokens.CommentEnd) + 1

    def _tag(self, position: int, out: list[str]) -> int:
        name = str(self._tokens[position + 1].text).strip().lower()
        if _is_dropped(name):
            end = self._after_tag(position)
            if name != "ref":
                out.append(REMOVED)
            elif self._precedes_punctuation(end):
                _strip_spaces(out)
            return end
        if _is_block(name):
            out.append("\n")
        position, depth = position + 1, 0
        while depth or self._kinds[position] not in (tokens.TagCloseOpen, tokens.TagCloseSelfclose):
            kind = self._kinds[position]  # an attribute's value may hold tags
            depth += (kind is tokens.TagOpenOpen) - (kind in (tokens.TagCloseClose, tokens.TagCloseSelfclose))
            position += 1
        position += 1
        if name == "nowiki" and self._kinds[position] is tokens.Text:
            out.append(self._tokens[position]["text"].translate(PROTECTED))
            position += 1
        if name == "sup" and self._kinds[position : position + 2] == [tokens.Text, tokens.TagOpenClose]:
            power = self._tokens[position]["text"].strip()
            if _EXPONENT.fullmatch(power):  # 10<sup>6</sup> is not 106
                out.append(power.translate(RAISED))
                position += 1
        return position

    def _precedes_punctuation(self, position: int) -> bool:
        return (
            position < len(self._kinds)
            and self._kinds[position] is tokens.Text
            and _BEFORE_PUNCTUATION.match(self._tokens[position]["text"]) is not None
        )

    def _after_tag(self, position: int) -> int:
        return self._after(position, tokens.TagOpenOpen, (tokens.TagCloseClose, tokens.TagCloseSelfclose))

    def _closing_tag(self, position: int, out: list[str]) -> int:
        if _is_block(str(self._tokens[position + 1].text).strip().lower()):
            out.append("\n")
        return self._find(position, tokens.TagCloseClose) + 1


def _strip_spaces(out: list[str]) -> None:
    """Remove the spaces at the end."""
    while out and not out[-1].rstrip(" "):
        out.pop()
    if out:
        out[-1] = out[-1].rstrip(" ")


@functools.lru_cache(maxsize=4096)
def _character(name: str) -> str:
    """The character of an entity, protected from the later steps, which would take it for markup."""
    return html.unescape(f"&{name};").translate(PROTECTED)

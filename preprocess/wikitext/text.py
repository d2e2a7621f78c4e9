"""Wikitext to the text that a reader sees as prose. No files and no dumps here.

mwparserfromhell cuts wikitext into tokens; building its tree takes ten times as long as that, so the tokens are walked
here.
"""

import functools
import html
import re
from collections.abc import Iterator

from mwparserfromhell.parser import Parser, tokens

from preprocess.wikitext.lines import BLOCK_TAGS, DROPPED_TAGS, HEADING, PROTECTED, REMOVED, clean_lines
from preprocess.wikitext.prefilter import shorten

FILES_AND_CATEGORIES = frozenset({"file", "image", "category"})  # these names hold in every language

_is_dropped = re.compile(DROPPED_TAGS).fullmatch
_is_block = re.compile(BLOCK_TAGS).fullmatch
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
_NOT_LANGUAGES = frozenset({"doi", "hdl", "mw", "rfc", "tw", "toc"})
_MEDIA = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|og[agv]|webm|webp|pdf|djvu|midi?|xcf|flac|wav|mp3|stl)\s*$", re.I)


def plain_text(
    wikitext: str, hidden_prefixes: frozenset[str] = FILES_AND_CATEGORIES, keep_templates: bool = False
) -> str:
    """The prose of a page, a paragraph, heading or list item on each line.

    Taken out are templates, tables, references, galleries, formulas, blocks of code, files, categories, links to other
    languages, comments, and headings with nothing under them. Links become their text.

    Args:
        wikitext: a page's source.
        hidden_prefixes: names, in lower case, before the colon of links that show no text where they stand.
        keep_templates: whether to put in place of a template its positional parameters.

    Returns:
        Lines without blank ones between; the empty string where nothing is left.

    Raises:
        mwparserfromhell.parser.ParserError: its own failure.
    """
    wikitext = shorten(wikitext, keep_templates)
    stream = Parser()._tokenizer.tokenize(wikitext, 0, True)  # True: leaves '' and ''' in the text
    return clean_lines("".join(_Walk(stream, hidden_prefixes, keep_templates).text(0, len(stream))))


class _Walk:
    """Goes over tokens once; ``kinds`` has their types."""

    def __init__(self, stream: list[tokens.Token], hidden_prefixes: frozenset[str], keep_templates: bool):
        self._tokens = stream
        self._kinds = list(map(type, stream))
        self._hidden_prefixes = hidden_prefixes
        self._keep_templates = keep_templates
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
        """What tokens start, …, end − 1 become."""
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
        """The first token of these kinds from a position on."""
        while self._kinds[position] not in kinds:
            position += 1
        return position

    def _after(self, position: int, opening: type, closing: tuple[type, ...]) -> int:
        """The position after the token that closes the one that stands here."""
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
        if self._keep_templates:
            values = ("".join(self.text(*span)).strip() for span in self._positional(position + 1, end - 1))
            out.append(" ".join(values))
        out.append(REMOVED)
        return end

    def _positional(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the values of a template's parameters without a name, or with a number for one, stand."""
        depth, start, named = 0, None, False
        for here in range(position, end):
            kind = self._kinds[here]
            depth += (kind is tokens.TemplateOpen) - (kind is tokens.TemplateClose)
            if depth == 0 and kind is tokens.TemplateParamSeparator:
                if start is not None and not named:
                    yield start, here
                start, named = here + 1, False
            elif depth == 0 and kind is tokens.TemplateParamEquals:
                key = "".join(self.text(start, here)).strip()
                start, named = here + 1, not key.isdecimal()
        if start is not None and not named:
            yield start, end

    def _argument(self, position: int, out: list[str]) -> int:
        out.append(REMOVED)
        return self._after(position, tokens.ArgumentOpen, (tokens.ArgumentClose,))

    def _wikilink(self, position: int, out: list[str]) -> int:
        end = self._find(position + 1, tokens.WikilinkSeparator, tokens.WikilinkClose)
        target = "".join(self.text(position + 1, end)).strip()
        if self._is_hidden(target):
            out.append(REMOVED)
            return self._after(position, tokens.WikilinkOpen, (tokens.WikilinkClose,))
        if self._kinds[end] is tokens.WikilinkClose:
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
        return self._find(position + 1, tokens.ExternalLinkSeparator, tokens.ExternalLinkClose) + 1

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
            out.append("" if name == "ref" else REMOVED)
            return self._after_tag(position)
        if _is_block(name):
            out.append("\n")
        position, depth = position + 1, 0
        while depth or self._kinds[position] not in (tokens.TagCloseOpen, tokens.TagCloseSelfclose):
            kind = self._kinds[position]  # a value of an attribute may hold tags
            depth += (kind is tokens.TagOpenOpen) - (kind in (tokens.TagCloseClose, tokens.TagCloseSelfclose))
            position += 1
        position += 1
        if name == "nowiki" and self._kinds[position] is tokens.Text:
            out.append(self._tokens[position]["text"].translate(PROTECTED))
            position += 1
        return position

    def _after_tag(self, position: int) -> int:
        return self._after(position, tokens.TagOpenOpen, (tokens.TagCloseClose, tokens.TagCloseSelfclose))

    def _closing_tag(self, position: int, out: list[str]) -> int:
        if _is_block(str(self._tokens[position + 1].text).strip().lower()):
            out.append("\n")
        return self._find(position, tokens.TagCloseClose) + 1


@functools.lru_cache(maxsize=4096)
def _character(name: str) -> str:
    """What an entity stands for, such that nothing later takes it for markup."""
    return html.unescape(f"&{name};").translate(PROTECTED)

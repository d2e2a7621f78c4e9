"""Regular expressions take out of wikitext, or make plain, the markup that needs no parser.

That is most comments, references, templates and links, which cost the parser most of its time. Each step gives what
the parser and the walk over its tokens would give.
"""

import re
from collections import Counter

from .lines import PROTECTED, REMOVED
from .renderers import Parameters
from .templates import find_renderer, may_be_prose, normal, split_parameters

_LITERAL = re.compile(r"<(?:nowiki|pre|source|syntaxhighlight)\b", re.I)  # inside these, markup is text
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_REFERENCE = re.compile(r"<ref\b[^<>]*?(?:/>|(?<!/)>[^<]*</ref\s*>)", re.I)
BEFORE_PUNCTUATION = re.compile(r"[,;:!?)]|\.(?!\d)")
_MARK = "\x05"
_MARKED = re.compile(f" *{_MARK}")
_INNERMOST_TEMPLATE = re.compile(r"\{\{(?<!\{\{\{)(?!\{)([^{}|<>\[\]]*)(?:\|([^{}]*))?\}\}")
_WHOLE_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_NEEDS_PARSER = re.compile(r"[<>&\[\]]|://")  # tags, entities, links to the web
_EQUALS = {ord("="): PROTECTED[ord("=")]}
_LINK = re.compile(r"\[\[(?<!\[\[\[)(?! )([^\[\]|:{}<>&_\n]+)(?<! )\]\](?!\])")
_LINK_WITH_TEXT = re.compile(r"\[\[(?<!\[\[\[)[^\[\]|:{}<>&\n]+\|([^\[\]|{}<>]+)\]\](?!\])")


def shorten(wikitext: str, keep_templates: bool, wiki: str, lost: Counter[str]) -> str:
    """Shorter wikitext that becomes the same text."""
    if _LITERAL.search(wikitext):
        return wikitext
    text = _without_references(_COMMENT.sub("", wikitext))
    if not keep_templates:

        def render(match: re.Match) -> str:
            return _render(match, wiki, lost)

        for _ in range(2):  # most are nested no deeper; the parser does the others
            text = _INNERMOST_TEMPLATE.sub(render, text)
    return _LINK_WITH_TEXT.sub(r"\1", _LINK.sub(r"\1", text))


def _without_references(text: str) -> str:
    """Remove references; the spaces too between a text and references that punctuation follows."""
    text = _REFERENCE.sub(_mark, text)
    return _MARKED.sub("", text) if _MARK in text else text


def _mark(reference: re.Match) -> str:
    text, start = reference.string, reference.start()
    spaced = start > 0 and text[start - 1] in " >"  # the end of another reference perhaps
    return _MARK if spaced and BEFORE_PUNCTUATION.match(text, reference.end()) else ""


def _render(match: re.Match, wiki: str, lost: Counter[str]) -> str:
    """The text of a template with no other inside it, or the template itself where its parameters need the parser."""
    render = find_renderer(match[1], wiki)
    parameters = match[2]
    if render is None:
        if parameters is not None and may_be_prose(match[1], wiki) and _shows_text(split_parameters(parameters)):
            lost[normal(match[1])] += 1
        return REMOVED
    if parameters is None:
        return render({}) or REMOVED
    if _NEEDS_PARSER.search(_WHOLE_LINK.sub("", parameters)):
        return match[0]
    text = render(split_parameters(parameters)) or REMOVED
    return text.translate(_EQUALS) if "=" in text else text  # in a template around it, = would end a parameter's name


def _shows_text(values: Parameters) -> bool:
    """Whether a parameter without a name has a letter or digit."""
    return any(key.isdecimal() and any(map(str.isalnum, value)) for key, value in values.items())

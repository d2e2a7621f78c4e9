"""Regular expressions take out of wikitext, or make plain, the markup that needs no parser.

That is most comments, references, templates and links, which cost the parser most of its time. Each step gives what
the parser and the walk over its tokens would give.
"""

import re

from .lines import PROTECTED, REMOVED
from .templates import find_renderer, split_parameters

_LITERAL = re.compile(r"<(?:nowiki|pre|source|syntaxhighlight)\b", re.I)  # inside these, markup is text
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_REFERENCE = re.compile(r"<ref\b[^<>]*?(?:/>|(?<!/)>[^<]*</ref\s*>)", re.I)
_INNERMOST_TEMPLATE = re.compile(r"\{\{(?<!\{\{\{)(?!\{)([^{}|<>\[\]]*)(?:\|([^{}]*))?\}\}")
_WHOLE_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_NEEDS_PARSER = re.compile(r"[<>&\[\]]|://")  # tags, entities, links to the web
_EQUALS = {ord("="): PROTECTED[ord("=")]}
_LINK = re.compile(r"\[\[(?<!\[\[\[)(?! )([^\[\]|:{}<>&_\n]+)(?<! )\]\](?!\])")
_LINK_WITH_TEXT = re.compile(r"\[\[(?<!\[\[\[)[^\[\]|:{}<>&\n]+\|([^\[\]|{}<>]+)\]\](?!\])")


def shorten(wikitext: str, keep_templates: bool) -> str:
    """Shorter wikitext that becomes the same text.

    Args:
        wikitext: a page's source.
        keep_templates: leave templates to the parser.
    """
    if _LITERAL.search(wikitext):
        return wikitext
    text = _REFERENCE.sub("", _COMMENT.sub("", wikitext))
    if not keep_templates:
        for _ in range(2):  # most are nested no deeper; the parser does the others
            text = _INNERMOST_TEMPLATE.sub(_render, text)
    return _LINK_WITH_TEXT.sub(r"\1", _LINK.sub(r"\1", text))


def _render(match: re.Match) -> str:
    """The text of a template with no other inside it, or the template itself where its parameters need the parser."""
    render = find_renderer(match[1])
    if render is None:
        return REMOVED
    parameters = match[2]
    if parameters is None:
        return render({}) or REMOVED
    if _NEEDS_PARSER.search(_WHOLE_LINK.sub("", parameters)):
        return match[0]
    text = render(split_parameters(parameters)) or REMOVED
    return text.translate(_EQUALS) if "=" in text else text  # in a template around it, = would end a parameter's name

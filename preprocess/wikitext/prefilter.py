"""What is taken out of wikitext, or made plain, before the parser sees it: markup with nothing inside it that matters.

These are most comments, references, templates and links, and take the parser most of its time. Each step gives what the
parser and the walk over its tokens would make of it.
"""

import re

from preprocess.wikitext.lines import REMOVED

_LITERAL = re.compile(r"<(?:nowiki|pre|source|syntaxhighlight)\b", re.I)  # inside these, markup is text
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_REFERENCE = re.compile(r"<ref\b[^<>]*?(?:/>|(?<!/)>[^<]*</ref\s*>)", re.I)
_INNERMOST_TEMPLATE = re.compile(r"\{\{(?<!\{\{\{)(?!\{)[^{}|<>\[\]]*(?:\|[^{}]*)?\}\}(?!\})")
_LINK = re.compile(r"\[\[(?<!\[\[\[)(?! )([^\[\]|:{}<>&_\n]+)(?<! )\]\](?!\])")
_LINK_WITH_TEXT = re.compile(r"\[\[(?<!\[\[\[)[^\[\]|:{}<>&\n]+\|([^\[\]|{}<>]*)\]\](?!\])")


def shorten(wikitext: str, keep_templates: bool) -> str:
    """Wikitext that the parser is quicker with and that becomes the same text.

    Args:
        wikitext: a page's source.
        keep_templates: whether templates are wanted.
    """
    if _LITERAL.search(wikitext):
        return wikitext
    text = _REFERENCE.sub("", _COMMENT.sub("", wikitext))
    if not keep_templates:
        for _ in range(2):  # most are nested no deeper; the parser is there for the others
            text = _INNERMOST_TEMPLATE.sub(REMOVED, text)
    return _LINK_WITH_TEXT.sub(r"\1", _LINK.sub(r"\1", text))

"""Faults in the text that a cleaner makes of wikitext, by rules that read the two alone.

- A **glued** word: two words, or a number and its exponent, that a template or ``<sup>`` separates in the wikitext are
  one word in the text, and the wikitext has that word nowhere.
- A **lost** measure: the number of a ``{{convert|5|km}}`` in prose does not follow the word before it.
- A **broken** sentence: a preposition or article with punctuation right after it, or brackets or quotation marks that
  begin with nothing. Sentences that end in "of" count as well, for every cleaner alike.
"""

import re
from collections import Counter

_NO_TEXT = re.compile(r"<!--.*?-->|<ref\b[^<>]*?/>|<ref\b[^<>]*?>.*?</ref\s*>", re.S)
_WORD = re.compile(r"\w+")
_JOINT = re.compile(r"(\w+)'*\{\{[^{}\n]*\}\}'*(?=(\w+))")
_POSSESSIVE = re.compile(r"(\w+)''+\{\{'(s)\}\}")
_POWER = re.compile(r"(\w*\d)<sup>(\d+)</sup>")
_MEASURE = re.compile(r"([A-Za-z]+)(?: |&nbsp;|['(\]]){1,3}\{\{\s*(?:convert|cvt)\s*\|\s*([\d,.]+)\s*\|", re.I)
_NO_PROSE = ("|", "!", "{{", "}", "*|")  # lines of tables and templates begin with these
_BROKEN = re.compile(
    r"\b(?:the|an|of|from|at|than|with|between|approximately|around|about) ?[.,;)](?!\w)|\(\s*[),;:]|\[\s*\]|\"\"|“”",
    re.I,
)


def count_faults(wikitext: str, text: str) -> Counter[str]:
    """Counts of ``words``, ``glued``, ``measures``, ``lost`` and ``broken``.

    Args:
        wikitext: the source of an article.
        text: what a cleaner made of it.
    """
    wikitext = _NO_TEXT.sub("", wikitext)
    words, source = set(_WORD.findall(text)), set(_WORD.findall(wikitext))
    joints = [match[1] + match[2] for rule in (_JOINT, _POSSESSIVE, _POWER) for match in rule.finditer(wikitext)]
    prose = "\n".join(line for line in wikitext.split("\n") if not line.lstrip().startswith(_NO_PROSE))
    measures = _MEASURE.findall(prose)
    return Counter(
        words=len(_WORD.findall(text)),
        glued=sum(joint in words and joint not in source for joint in joints),
        measures=len(measures),
        lost=sum(not _follows(word, number.replace(",", ""), text) for word, number in measures),
        broken=len(_BROKEN.findall(text)),
    )


def _follows(word: str, number: str, text: str) -> bool:
    """Whether a number, with or without commas, comes after a word."""
    return re.search(rf"{word}\W{{1,4}}" + ",?".join(map(re.escape, number)), text) is not None

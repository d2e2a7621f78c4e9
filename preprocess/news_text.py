"""The text of a Hyperpartisan article as Longformer's authors read it, in time that grows with its length alone."""

from __future__ import annotations

import re

_EITHER_OR = re.compile(r"(?<![a-zA-Z])[a-zA-Z]+/[a-zA-Z]+")  # begins with a run of letters, so that each is read once
_LINKS = tuple(re.compile(rf"{start}\S+") for start in ("http", "www", "href"))
_MARKS = re.compile(r"[!?.]+([!?.])")
_STRETCH = re.compile(r"\S+")
_WORD_CHARACTER = re.compile(r"\w")
_RUN = re.compile(r"(.)\1{2,}", re.DOTALL)


def clean(text: str) -> str:
    """Return the text on one line without what a model learns nothing from.

    Two words with a slash between them become a blank; ``&#160;`` as text, and everything from ``http``, ``www`` or
    ``href`` to the next blank, goes; of several marks ``!?.`` the last one stays, and of three or more of the same
    character at the end of a word or before one, one stays.
    """
    text = _EITHER_OR.sub(" ", text).replace("\n", " ").replace("&#160;", "")
    for link in _LINKS:
        text = link.sub("", text)
    text = re.sub(r"\s+", " ", text)
    text = _MARKS.sub(r"\1", text)
    return _STRETCH.sub(_shorten, text).strip()


def _shorten(stretch: re.Match[str]) -> str:
    """Shorten the runs of a stretch without blanks, from its first word on, that end where a word ends or begins."""
    text = stretch[0]
    word = _WORD_CHARACTER.search(text)
    if word is None:
        return text

    def one(run: re.Match[str]) -> str:
        following = text[run.end() : run.end() + 1]
        is_edge = _is_word(run[1]) != _is_word(following)
        return run[1] if is_edge and run.start() >= word.start() else run[0]

    return _RUN.sub(one, text)


def _is_word(character: str) -> bool:
    return _WORD_CHARACTER.match(character) is not None

"""The ends of sentences, which decide ROUGE-Lsum, and the lead baseline.

A published ROUGE-L can only be compared with one of the same sentences, so each rule has a name, which is printed with
the scores.
"""

import re

SENTENCE_SPLITS = {
    "rule": "after . ! ? before a capital or digit, and after every . ! ? that is a word of its own",
    "period": 'as files2rouge, after every " ." only',
    "newline": "no split except at line feeds",
}

_ABBREVIATION = re.compile(r"al|approx|ca|cf|dr|e\.g|eqs?|figs?|i\.e|mrs?|ms|prof|refs?|resp|sec|st|vs", re.IGNORECASE)
_ENDING = re.compile(r"""(?P<body>.*?)(?P<mark>[.!?]+)["'’”)\]]*""")
_OPENING = "\"'‘“(["


def split_sentences(text: str, rule: str = "rule") -> list[str]:
    """Split a text into sentences; a line feed always ends one.

    Rules, by name:

    - ``rule``: a word ends a sentence when it ends in ``.``, ``!`` or ``?`` (closing quotes and brackets may
      follow) and the next word starts with a capital or a digit, opening quotes and brackets aside. A mark of
      its own, as in tokenised text (``statistics . we show``), needs no capital after it. No
      sentence ends after a single capital (``J. Smith``) or one of a few abbreviations of papers (``et al.``,
      ``Fig.``, ``i.e.``, ``vs.``).
    - ``period``: files2rouge's: after every ``" ."``, and nowhere else. Text that is not tokenised stays
      whole.
    - ``newline``: the text is one sentence.
    """
    if rule not in SENTENCE_SPLITS:
        raise ValueError(f"sentence split {rule!r} is unknown: choose one of {', '.join(SENTENCE_SPLITS)}")
    lines = text.split("\n")
    if rule == "rule":
        lines = [sentence for line in lines for sentence in _split_by_rule(line)]
    elif rule == "period":
        lines = " .\n".join(text.split(" .")).split("\n")
    return [line for line in lines if line.strip()]


def lead_baseline(document: str, *, words: int | None = None, sentences: int | None = None) -> str:
    """Take a document's first words or sentences as its summary, in one line: the baseline that one has to beat."""
    given = [length for length in (words, sentences) if length is not None]
    if len(given) != 1 or given[0] < 1:
        raise ValueError(f"give words or sentences, one of them, at least 1: got {words=}, {sentences=}")
    if words is not None:
        return " ".join(document.split()[:words])
    return " ".join(" ".join(split_sentences(document)[:sentences]).split())


def _split_by_rule(line: str) -> list[str]:
    words = line.split()
    sentences, start = [], 0
    for index in range(len(words)):
        if _ends_sentence(words, index):
            sentences.append(" ".join(words[start : index + 1]))
            start = index + 1
    sentences.append(" ".join(words[start:]))
    return sentences


def _ends_sentence(words: list[str], index: int) -> bool:
    ending = _ENDING.fullmatch(words[index])
    if ending is None:
        return False
    alone = not ending["body"]
    body = words[index - 1] if alone and index else ending["body"]
    body = body.lstrip(_OPENING)
    if ending["mark"] == "." and _ABBREVIATION.fullmatch(body):
        return False
    if alone or index + 1 == len(words):
        return True
    if len(body) == 1 and body.isupper():
        return False
    following = words[index + 1].lstrip(_OPENING)
    return following[:1].isupper() or following[:1].isdigit()

"""Texts that metrics may trip over."""

import random

WORDS = [
    *("the", "a", "An", "THE", "cat", "cats", "sat", "on", "mat", "running", "runs", "U.S.", "don't", "x-ray", "2,500"),
    *("théâtre", "naïve", "İstanbul", "ß", "Straße", "½", "“quoted”", "–", "…", "١٢", "日本", "🙂", "a\u0301", "ﬁne"),
    *("40%", "4.5%", "٤٠%", "100.%", "%", "A", "(B)", "C.", "D,", "E", "AB", "_", "__a__", "an.", ".", "!?", "''", '"'),
    *("1,", "2,", "3", "4,3", "\u200b", "\x1c", "\x85", "\u2028", "\ufeff", "NaN", "inf", "null", "yes", "no"),
]
BLANKS = (" ", " ", " ", "  ", "\n", "\t", "\u00a0", "", ". ", ".\n\n")


def text(source: random.Random, longest: int = 12) -> str:
    """A text of at most so many words; one in ten is empty or blank."""
    if source.random() < 0.1:
        return source.choice(["", " ", "\n", ".", "the", "a an the"])
    words = source.choices(WORDS, k=source.randint(1, longest))
    return "".join(word + source.choice(BLANKS) for word in words)


def altered(source: random.Random, original: str) -> str:
    """A text that is like another one."""
    words = original.split()
    changed = [word for word in words if source.random() < 0.8] + [source.choice(WORDS)] * (source.random() < 0.4)
    if source.random() < 0.2:
        source.shuffle(changed)
    return source.choice([original, " ".join(changed), " ".join(changed).upper(), f"The {original}!"])

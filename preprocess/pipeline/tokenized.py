"""Texts that are not the text: cut by a tokenizer already, or with control characters of another encoding."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from .records import Example, Parse, parsed
from .splits import SplitRecords

SAMPLE = 2**16  # characters of a split that are looked at
LEAST = 50  # words without which nothing is said
# share of the words from which a mark is a tokenizer's
MARKS = (
    ("sentencepiece's pieces", re.compile("\u2581"), 0.2),
    ("GPT-2's pieces", re.compile("\u0120"), 0.2),
    ("pieces of subword-nmt", re.compile(r".*@@$"), 0.05),
    ("word pieces", re.compile(r"##\w"), 0.05),
)
NUMBERS = 0.98  # share of whole numbers
# C1, which no text has: quotes, dashes and € of CP1252 that was read as Latin-1
CONTROLS, ENCODED_CONTROLS = re.compile("[\x80-\x9f]"), re.compile(b"\xc2[\x80-\x9f]")


def tokens_in(text: str) -> str | None:
    """Name the tokens that the words of a text are; None for any other text, tables of numbers among them."""
    words = text.split()
    if len(words) < LEAST:
        return None
    for name, mark, share in MARKS:
        if sum(mark.match(word) is not None for word in words) >= share * len(words):
            return name
    if sum(word.isascii() and word.isdecimal() for word in words) < NUMBERS * len(words):
        return None
    rows = [len(line.split()) for line in text.splitlines() if line.strip()][:-1]  # the last one may be cut
    is_table = "\t" in text or (len(rows) > 1 and len(set(rows)) == 1)
    return None if is_table else "numbers of bytes or tokens"


def tokenized_splits(splits: Mapping[str, SplitRecords], parse: Parse) -> list[str]:
    """Return a line for each split whose text is tokenized."""
    lines = []
    for name, records in splits.items():
        texts = (parsed(record, records.parse or parse) for record in records.records())
        text = beginning(text for example in texts if isinstance(example, Example) for text in example.texts)
        if (kind := tokens_in(text)) is not None:
            lines.append(f"{name}: its words are {kind}; give the text from before that step, which is cut here again")
    return lines


def control_characters(name: str, counts: Counter[str]) -> list[str]:
    """Return a line for a text in which control characters were counted."""
    if not counts:
        return []
    return [
        f"{name}: {counts.total():,} characters are control characters, such as U+{ord(min(counts)):04X}: was text of "
        "Windows read as Latin-1? Then convert the original with iconv -f CP1252 -t UTF-8"
    ]


def beginning(texts: Iterator[str]) -> str:
    """The first SAMPLE characters of texts, each on lines of its own."""
    beginnings, left = [], SAMPLE
    while left > 0 and (text := next(texts, None)) is not None:
        beginnings.append(text[:left])
        left -= len(text)
    return "\n".join(beginnings)

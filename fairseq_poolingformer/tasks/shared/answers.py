"""Right answers of several files, predictions, which must be of them, and how answers are compared."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Right = TypeVar("Right")
Found = TypeVar("Found")


def merged(paths: Sequence[Path], read: Callable[[Path], Mapping[Key, Right]]) -> dict[Key, Right]:
    """Merge the entries that ``read`` returns for each file."""
    right: dict[Key, Right] = {}
    for path in map(Path, paths):
        for key, value in read(path).items():
            if right.setdefault(key, value) != value:
                raise ValueError(f"{path}: {key!r} has another right answer than in another gold file; leave one out")
    return right


def compared(
    gold: Sequence[Path],
    predictions: Path,
    read_gold: Callable[[Path], Mapping[Key, Right]],
    read_predictions: Callable[[Path], Mapping[Key, Found]],
) -> tuple[dict[Key, Right], Mapping[Key, Found]]:
    """The right answers of all files, and the predictions, of which there is one at least."""
    right, predicted = merged(gold, read_gold), read_predictions(Path(predictions))
    if not predicted:
        raise ValueError(f"{predictions}: no predictions in it")
    check_known(predictions, predicted, right)
    return right, predicted


def check_known(predictions: Path, predicted: Iterable[Key], right: Container[Key] | Iterable[Key]) -> None:
    """Raise ValueError for the first prediction that is of no key of the gold files."""
    unknown = next((key for key in predicted if key not in right), None)
    if unknown is not None:
        same = next((key for key in right if str(key).lstrip("0") == str(unknown).lstrip("0")), None)
        cause = "are they of another split?" if same is None else f"their {same!r} is another id"
        raise ValueError(f"{predictions}: the gold files do not have {unknown!r}; {cause}")


_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_UNIT = re.compile(r"\w+|[^\w\s]")  # of a word: the script's words may hold “ or –, which is no punctuation for it
_TRIVIAQA_BLANKS = dict.fromkeys(map(ord, string.punctuation + "‘’´`"), " ")  # the underscore is one of them
_NO_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))


@dataclass(frozen=True)
class Overlap:
    """How far a prediction's words are those of the right answer, from 0 to 1."""

    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0

    @classmethod
    def of(cls, same: int, predicted: int, right: int) -> Overlap:
        """The shares of a number of things that are the same, all 0 where nothing is."""
        return cls.between(same / predicted, same / right) if same else cls()

    @classmethod
    def between(cls, precision: float, recall: float) -> Overlap:
        """Both, and their harmonic mean."""
        return cls((2 * precision * recall) / (precision + recall) if precision + recall else 0.0, precision, recall)


def triviaqa_words(text: str) -> list[str]:
    """The words that TriviaQA's script compares: every punctuation mark separates words, and articles are left out."""
    return _ARTICLE.sub(" ", text.lower().translate(_TRIVIAQA_BLANKS)).split()


def hotpotqa_words(text: str) -> list[str]:
    """The words that HotpotQA's script compares: punctuation marks vanish, and articles are left out."""
    return _ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def overlap(predicted: Sequence[str], right: Sequence[str]) -> Overlap:
    """Compare two lists of words without their order; both scripts count two empty lists as different."""
    return Overlap.of(sum((Counter(predicted) & Counter(right)).values()), len(predicted), len(right))


def find_answers(text: str, answers: Sequence[str]) -> list[tuple[int, int]]:
    """Find every piece of a text that TriviaQA's script counts as exactly right, as any of the answers."""
    wanted: dict[str, set[tuple[str, ...]]] = {}
    for answer in answers:
        if words := triviaqa_words(answer):
            units = tuple(_UNIT.findall(" ".join(words)))
            wanted.setdefault(units[0], set()).add(units)
    right = {tuple(triviaqa_words(answer)) for answer in answers}
    units, places = _units(text)
    spans = set()
    for first, unit in enumerate(units):
        for answer in wanted.get(unit, ()):
            end = first + len(answer)
            if tuple(units[first:end]) == answer:
                span = places[first][0], places[end - 1][1]
                if tuple(triviaqa_words(text[slice(*span)])) in right:  # the spaces between units may differ
                    spans.add(span)
    return sorted(spans)


def _units(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The units of a text's words as the script compares them, and their places in the text, in characters."""
    lowered = text.lower()
    translated = _ARTICLE.sub(lambda article: " " * len(article[0]), lowered.translate(_TRIVIAQA_BLANKS))
    matches = [(match[0], match.span()) for match in _UNIT.finditer(translated)]
    units, places = [unit for unit, _ in matches], [place for _, place in matches]
    if len(lowered) != len(text):  # "İ" becomes two characters
        origin = [number for number, char in enumerate(text) for _ in char.lower()]
        places = [(origin[start], origin[end - 1] + 1) for start, end in places]
    return units, places

"""The most likely pieces of a text under a sentencepiece unigram model, whatever the text's length.

sentencepiece sums the scores of a whole text in float32. Far into a long document a sum has too few digits left to tell
two segmentations of a word apart, so the same word gets other pieces there than at the beginning. Here each word is
segmented by itself in float64, as Hugging Face's tokenizers do.
"""

import re
from collections.abc import Iterator

from sentencepiece import SentencePieceProcessor

SPACE = "\u2581"  # stands for a space in sentencepiece's pieces
_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_UNKNOWN_PENALTY = 10.0  # sentencepiece's: an unknown character scores so much less than the worst piece
_UNIGRAM = 1  # of sentencepiece's enumeration of model types
_CACHED_WORDS = 2**17
_CACHED_CHARS = 64  # longer words rarely come a second time

Segments = tuple[list[int], list[int]]


class UnigramModel:
    """Segments normalized text.

    Args:
        processor: a unigram model.
    """

    def __init__(self, processor: SentencePieceProcessor) -> None:
        usable = [
            piece
            for piece in range(processor.get_piece_size())
            if not any(f(piece) for f in (processor.is_control, processor.is_unknown, processor.is_unused))
        ]
        self._bytes = {int(processor.id_to_piece(p)[3:5], 16): p for p in usable if processor.is_byte(p)}
        text = {p: processor.id_to_piece(p) for p in usable if not processor.is_byte(p)}
        scores = {p: processor.get_score(p) for p in text}
        worst = min((score for score in scores.values() if score), default=0.0)
        # A user-defined symbol has no probability, so its score is 0; sentencepiece counts 0.1 for each further byte.
        self._pieces = {name: (p, scores[p] or 0.1 * (len(name.encode()) - 1)) for p, name in text.items()}
        self._longest: dict[str, int] = {}  # by their first two characters, the length of the longest piece
        for name in text.values():
            self._longest[name[:2]] = max(len(name), self._longest.get(name[:2], 1))
        self._unknown = processor.unk_id()
        self._unknown_score = worst - _UNKNOWN_PENALTY
        self._splits_words = not any(SPACE in name.lstrip(SPACE) for name in text.values())
        self._known_words: dict[str, Segments] = {}

    def segment(self, normalized: str) -> Segments:
        """Segment a text.

        Args:
            normalized: the text as the processor normalizes it.

        Returns:
            The model's piece numbers, and how many characters of the text each covers. Of several byte pieces for one
            character, the last covers it and the others cover nothing.
        """
        pieces, sizes = [], []
        known = self._known_words
        for word in self._words(normalized):
            found = known.get(word) or self._segment_new(word)
            pieces += found[0]
            sizes += found[1]
        return pieces, sizes

    def _segment_new(self, word: str) -> Segments:
        found = self._best(word)
        if len(word) <= _CACHED_CHARS:
            if len(self._known_words) >= _CACHED_WORDS:
                self._known_words.clear()
            self._known_words[word] = found
        return found

    def _words(self, normalized: str) -> Iterator[str] | list[str]:
        """Parts of the text that no piece crosses."""
        return _WORD.findall(normalized) if self._splits_words else [normalized]

    def _best(self, word: str) -> Segments:
        """The Viterbi algorithm; of equal sums, the one whose last piece is longest wins, as in sentencepiece."""
        size, find = len(word), self._pieces.get
        best = [0.0] + [float("-inf")] * size  # of the text up to here
        last: list[tuple[int, int]] = [(0, 0)] * (size + 1)  # where its last piece begins, and its number
        for start in range(size):
            before = best[start]
            piece, score = find(word[start], (self._unknown, self._unknown_score))
            if before + score > best[start + 1]:
                best[start + 1], last[start + 1] = before + score, (start, piece)
            for end in range(start + 2, min(size, start + self._longest.get(word[start : start + 2], 1)) + 1):
                found = find(word[start:end])
                if found is not None and before + found[1] > best[end]:
                    best[end], last[end] = before + found[1], (start, found[0])
        found_pieces, sizes, end = [], [], size
        while end:
            start, piece = last[end]
            found_pieces.append(piece)
            sizes.append(end - start)
            end = start
        return self._without_unknown(word, found_pieces[::-1], sizes[::-1])

    def _without_unknown(self, word: str, pieces: list[int], sizes: list[int]) -> Segments:
        """Replace each unknown character by its bytes; without byte pieces, make a run of them one unknown piece."""
        if self._unknown not in pieces:
            return pieces, sizes
        new_pieces: list[int] = []
        new_sizes: list[int] = []
        position = 0
        for piece, size in zip(pieces, sizes, strict=True):
            if piece == self._unknown and self._bytes:
                data = word[position : position + size].encode()
                new_pieces += [self._bytes[byte] for byte in data]
                new_sizes += [0] * (len(data) - 1) + [size]
            elif piece == self._unknown and new_pieces and new_pieces[-1] == piece:
                new_sizes[-1] += size
            else:
                new_pieces.append(piece)
                new_sizes.append(size)
            position += size
        return new_pieces, new_sizes


def is_unigram(proto: bytes) -> bool:
    """Whether a serialized sentencepiece model is a unigram model; protobuf is not needed to tell."""
    trainer = next((value for number, value in fields(proto) if number == 2 and isinstance(value, bytes)), b"")
    return next((value for number, value in fields(trainer) if number == 3), _UNIGRAM) == _UNIGRAM


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers and values."""
    position = 0

    def varint() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield number, message[position : position + size]
            position += size

"""The interface of tokenizers for preprocessing, tasks and command lines, and the offsets of their tokens."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fairseq_poolingformer.text.data_folder import tokenizer_path

_UNICODE_SIZE = 0x110000
SPARE_SYMBOL = re.compile(r"madeupword\d+")
GPT2, SENTENCEPIECE = KINDS = ("gpt2", "sentencepiece")
KEEP, BLANK = WHITE_SPACE = ("keep", "blank")


@dataclass(frozen=True)
class TokenizerConfig:
    """The content of ``tokenizer/config.json``, checked."""

    kind: str  # of the tokenizer's class
    white_space: str = KEEP  # of GPT-2's BPE: BLANK reads tabs and line breaks as blanks

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {str(self.kind)[:100]!r}; this version knows {' and '.join(KINDS)}")
        if self.white_space not in (WHITE_SPACE if self.kind == GPT2 else (KEEP,)):
            raise ValueError(f"white_space must be {KEEP}, or of {GPT2} {BLANK}, is {self.white_space!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TokenizerConfig":
        """The configuration of a file's values."""
        if unknown := values.keys() - {"kind", "white_space"}:
            raise ValueError(f"unknown settings of a tokenizer: {', '.join(sorted(unknown))}")
        return cls(values.get("kind", ""), values.get("white_space", KEEP))

    def values(self) -> dict[str, str]:
        """A file's values, without the default."""
        return {"kind": self.kind} | ({} if self.white_space == KEEP else {"white_space": self.white_space})


PLAIN_GPT2 = TokenizerConfig(GPT2)


class Tokenizer(ABC):
    """Text to the indices of a fairseq dictionary, and back."""

    files: ClassVar[tuple[str, ...]]  # of tokenizer/ beside config.json
    config: TokenizerConfig

    @abstractmethod
    def __len__(self) -> int:
        """The size of the fairseq dictionary, its four special symbols included."""

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Dictionary indices of a text."""

    @abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encode a text and find the place of each token in it.

        Offsets count bytes of the text in UTF-8 and are half-open; neither starts nor ends decrease. They never cut
        a character: of several tokens that make one character, each has its offsets. White space before a token's text
        is left out, so that a token of white space alone is empty: its start is its end.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """:meth:`encode` of every text."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of dictionary indices; ``<unk>`` stays visible, other special symbols are left out."""

    @abstractmethod
    def spare_symbols(self) -> list[int]:
        """Indices of the symbols that no text contains: fairseq's ``madeupword0000`` and so on, in order."""

    @abstractmethod
    def symbol_texts(self) -> list[bytes]:
        """The UTF-8 of every symbol inside a text, perhaps a part of a character, with the space before a word."""

    @abstractmethod
    def write_dictionary(self, path: Path) -> None:
        """Write the dictionary as fairseq reads it."""

    @abstractmethod
    def _write_files(self, folder: Path) -> None:
        """Write :attr:`files` into an existing folder."""

    @classmethod
    @abstractmethod
    def from_files(cls, folder: Path, config: TokenizerConfig) -> "Tokenizer":
        """Load the tokenizer whose :attr:`files` are in a folder."""

    def save(self, data_folder: Path) -> None:
        """Write ``tokenizer/`` into a data folder; ``load_tokenizer(data_folder)`` rebuilds the tokenizer from it."""
        folder = tokenizer_path(data_folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._write_files(folder)
        (folder / "config.json").write_text(json.dumps(self.config.values()) + "\n", encoding="utf-8")


class Blanks:
    """Skips the blank characters that tokens begin with: white space before a token's text is not part of the token."""

    def __init__(self, is_blank: Callable[[str], bool]):
        self._is_blank = is_blank
        self._known = np.full(_UNICODE_SIZE, -1, np.int8)  # -1: not known yet

    def skip(self, text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Move starts over blank characters, at most to their ends."""
        chars = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        blank = self._known[chars]
        if (blank < 0).any():
            for char in np.unique(chars[blank < 0]).tolist():
                self._known[char] = self._is_blank(chr(char))
            blank = self._known[chars]
        blank = blank.astype(bool)
        if not text.isascii():
            blank = np.repeat(blank, np.diff(byte_offsets(text)))
        text_bytes = np.append(np.flatnonzero(~blank), len(blank))
        return np.minimum(text_bytes[np.searchsorted(text_bytes, starts)], ends)


def byte_offsets(text: str) -> np.ndarray:
    """(n + 1,) where each of a text's n characters begins in UTF-8, in bytes, and where the last one ends."""
    chars = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (chars >= 0x80) + (chars >= 0x800) + (chars >= 0x10000)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])

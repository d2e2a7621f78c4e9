"""GPT-2's byte-level BPE with fairseq's dictionary: the very ids fairseq gives, ten times as fast on new text.

fairseq turns text into GPT-2 ids, writes these as text, and looks every number up in ``dict.txt``. This module encodes
a text in one call of tiktoken, and one table leads from a token straight to its dictionary index. It remembers no words
between texts: on new text, looking words up in Python and learning the unknown ones takes longer than merging all.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tiktoken

from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, UNK, read_symbols
from fairseq_poolingformer.text.json_file import read_json_file, read_text_file
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import (
    BLANK,
    PLAIN_GPT2,
    SPARE_SYMBOL,
    Blanks,
    Tokenizer,
    TokenizerConfig,
)

GPT2_FILES = ("encoder.json", "vocab.bpe")  # as OpenAI and fairseq give them
# GPT-2's pattern. One group holds everything that needs no look-ahead: tiktoken's regex engine runs such a group as an
# automaton and backtracks only where it finds nothing, before a run of whitespace inside the text.
_PATTERN = r"(?:'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+$)|\s+(?!\S)|\s"
# tiktoken searches every text for special tokens. If it knows none, its search matches before every byte and takes
# longer than the encoding. So it gets one, and each call tells it to read that one as text.
END_OF_TEXT = "<|endoftext|>"
_SPACE = r"[^\S\x1c-\x1f]"  # \s of that pattern; Python's has four characters more, which are punctuation to GPT-2
_BLANKS = str.maketrans("\t\n\v\f\r", "     ")  # a byte for a byte: offsets stay what they are
_MAX_RUN = 500_000  # of whitespace inside a text; tiktoken's backtracking has a stack of a million


class GPT2Tokenizer(Tokenizer):
    """GPT-2 BPE to and from the indices of a fairseq dictionary.

    A lone surrogate (``\\ud800`` in JSON) has no UTF-8 and becomes U+FFFD; fairseq's encoder would stop there. Encoding
    takes time n log n for text of any shape: megabytes without a space, or of spaces alone, get the ids that fairseq's
    quadratic merging would reach in the end. One exception remains: fairseq asks Python's ``regex`` for the letters,
    tiktoken uses tables of its own, and the two may know different versions of Unicode. A letter that only one of them
    knows can then be cut differently before 's, 't, 're, 've, 'm, 'll or 'd.
    """

    files = (*GPT2_FILES, "dict.txt")

    def __init__(self, encoder_json: Path, vocab_bpe: Path, dict_txt: Path, config: TokenizerConfig = PLAIN_GPT2):
        self.config = config
        self._paths = (Path(encoder_json), Path(vocab_bpe), Path(dict_txt))
        symbols = read_symbols(self._paths[2])
        tokens = _read_merges(self._paths[1])
        self._spare_symbols = [
            len(SPECIAL_SYMBOLS) + number for number, symbol in enumerate(symbols) if SPARE_SYMBOL.fullmatch(symbol)
        ]
        self._size = len(SPECIAL_SYMBOLS) + len(symbols)
        self._index_of_token = _token_indices(self._paths, tokens, symbols)
        self._blanks = Blanks(str.isspace)
        self._size_of_token = np.array(list(map(len, tokens)))
        ranks = {token: rank for rank, token in enumerate(tokens)}
        special = {END_OF_TEXT: len(tokens)}
        self._bpe = tiktoken.Encoding("gpt2", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=special)
        self._text_of_index = {UNK: b"<unk>"}
        for token, index in zip(tokens, self._index_of_token.tolist(), strict=True):
            if index != UNK:
                self._text_of_index[index] = token

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> np.ndarray:
        return self._index_of_token[self._tokens(replace_lone_surrogates(text))]

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        text = replace_lone_surrogates(text)
        tokens = self._tokens(text)
        sizes = self._size_of_token[tokens]
        ends = np.cumsum(sizes)
        starts = ends - sizes
        if not text.isascii():
            starts, ends = _whole_characters(text, starts, ends)
        return self._index_of_token[tokens], self._blanks.skip(text, starts, ends), ends

    def _tokens(self, text: str) -> np.ndarray:
        text = text.translate(_BLANKS) if self.config.white_space == BLANK else text
        pieces = [self._bpe.encode_to_numpy(piece, disallowed_special=()) for piece in _cut_long_runs(text)]
        return np.concatenate(pieces)

    def decode(self, ids: Sequence[int]) -> str:
        parts = [self._text_of_index.get(int(index), b"") for index in ids]
        return b"".join(parts).decode("utf-8", "replace")

    def spare_symbols(self) -> list[int]:
        return self._spare_symbols

    def symbol_texts(self) -> list[bytes]:
        first = len(SPECIAL_SYMBOLS)
        return [b""] * first + [self._text_of_index.get(index, b"") for index in range(first, len(self))]

    def write_dictionary(self, path: Path) -> None:
        shutil.copyfile(self._paths[2], path)

    def _write_files(self, folder: Path) -> None:
        for source, name in zip(self._paths, self.files, strict=True):
            shutil.copyfile(source, folder / name)

    @classmethod
    def from_files(cls, folder: Path, config: TokenizerConfig = PLAIN_GPT2) -> "GPT2Tokenizer":
        encoder_json, vocab_bpe, dict_txt = (Path(folder) / name for name in cls.files)
        return cls(encoder_json, vocab_bpe, dict_txt, config)


def _whole_characters(text: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Widen byte offsets to the characters that they cut."""
    data = np.frombuffer(text.encode("utf-8"), np.uint8)
    bounds = np.append(np.flatnonzero(data & 0xC0 != 0x80), len(data))
    return bounds[np.searchsorted(bounds, starts, side="right") - 1], bounds[np.searchsorted(bounds, ends)]


def _cut_long_runs(text: str) -> list[str]:
    """Cut the text into independent pieces, so that no piece has a long run of whitespace inside it."""
    if not any(map(str.isspace, text[_MAX_RUN - 1 :: _MAX_RUN])):  # every long run covers one of these positions
        return [text]
    return re.split(rf"(?<!{_SPACE})({_SPACE}{{{_MAX_RUN},}})(?={_SPACE}[\S\x1c-\x1f])", text)


def byte_symbols() -> dict[str, int]:
    """GPT-2's printable stand-in for every byte, in the order of their ranks."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _read_merges(vocab_bpe: Path) -> list[bytes]:
    """Read every token as bytes: the 256 bytes, then the merges in the order in which they are applied."""
    byte_of = byte_symbols()
    tokens = [bytes([b]) for b in byte_of.values()]
    lines = read_text_file(vocab_bpe).split("\n")[1:-1]
    for number, line in enumerate(lines, 2):
        pair = line.split()
        if len(pair) != 2 or not byte_of.keys() >= set("".join(pair)):
            raise ValueError(f"{vocab_bpe}, line {number}: expected two byte-level symbols, found {line[:100]!r}")
        tokens.append(bytes(map(byte_of.__getitem__, "".join(pair))))
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"{vocab_bpe}: two merges make the same token; this is not a GPT-2 style merge list")
    return tokens


def _token_indices(paths: Sequence[Path], tokens: list[bytes], symbols: list[str]) -> np.ndarray:
    """Return the dictionary index of every token (int64), ``<unk>`` where ``dict.txt`` lacks the token's id."""
    encoder_json, vocab_bpe, _ = paths
    gpt2_ids = read_json_file(encoder_json)
    if odd := [token for token, number in gpt2_ids.items() if type(number) is not int]:
        raise ValueError(f"{encoder_json}: the id of token {odd[0][:100]!r} is not a whole number")
    symbol_of_byte = {b: char for char, b in byte_symbols().items()}
    index_of_symbol = {symbol: len(SPECIAL_SYMBOLS) + k for k, symbol in enumerate(symbols)}
    indices = []
    for token in tokens:
        name = "".join(map(symbol_of_byte.__getitem__, token))
        if name not in gpt2_ids:
            raise ValueError(
                f"{encoder_json}: lacks token {name[:100]!r}, which {vocab_bpe} makes; take both from one model"
            )
        indices.append(index_of_symbol.get(str(gpt2_ids[name]), UNK))
    return np.array(indices)

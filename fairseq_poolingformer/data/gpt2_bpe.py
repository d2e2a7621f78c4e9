"""GPT-2's byte-level BPE with fairseq's dictionary: the very ids fairseq gives, several times as fast.

fairseq turns text into GPT-2 ids, writes these as text, and looks every number up in ``dict.txt``. Here the merging is
tiktoken's, one table goes from a token straight to its dictionary index, and what was encoded once is remembered.

Why remembering is exact: no token goes on from text to the whitespace after it, and the pattern never looks back. So a
text may be cut before every run of whitespace that follows text, and the pieces never influence each other. Where all
whitespace is single spaces, that is ``split(" ")``, the quickest there is; else the pieces are whitespace and the text
after it.
"""

import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tiktoken

from fairseq_poolingformer.data.dictionary import (
    SPECIAL_SYMBOLS,
    UNK,
    read_symbols,
    replace_lone_surrogates,
    smallest_dtype,
)
from fairseq_poolingformer.data.tokenizer_base import Tokenizer

# GPT-2's pattern with possessive quantifiers, as tiktoken itself spells it: the same matches, without backtracking.
_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
# What \s means in that pattern. Python's own \s also has \x1c-\x1f, which GPT-2 counts as punctuation.
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_SPACES += "\u2028\u2029\u202f\u205f\u3000"
_DOUBLE = re.compile(rf"[{_SPACES}]{{2}}")
_UNIT = re.compile(rf"[{_SPACES}]*[^{_SPACES}]+|[{_SPACES}]+")
_LONG = 1000  # characters; longer units are encoded one by one

_MAX_REMEMBERED = 2**18  # units; about 60 MB of ordinary text


class GPT2Tokenizer(Tokenizer):
    """GPT-2 BPE to and from the indices of a fairseq dictionary.

    A lone surrogate (``\\ud800`` in JSON) has no UTF-8 and becomes U+FFFD; fairseq's encoder would stop there. Text of
    any shape takes time n log n: megabytes without a space, or of nothing but spaces, are encoded to the ids that
    fairseq's quadratic merging would reach in the end. The one exception: fairseq asks Python's ``regex`` what a letter
    is, tiktoken its own tables, and one may know a younger Unicode; a letter that is new there and stands before 's,
    't, 're, 've, 'm, 'll or 'd can then be cut differently.

    Args:
        encoder_json: GPT-2's ``encoder.json``, token to GPT-2 id.
        vocab_bpe: GPT-2's ``vocab.bpe``, the merges.
        dict_txt: fairseq's ``dict.txt``, whose symbols are GPT-2 ids in decimal.

    Raises:
        ValueError: the files do not belong together.
    """

    kind = "gpt2"
    files = ("encoder.json", "vocab.bpe", "dict.txt")

    def __init__(self, encoder_json: Path, vocab_bpe: Path, dict_txt: Path):
        self._paths = (Path(encoder_json), Path(vocab_bpe), Path(dict_txt))
        symbols = read_symbols(self._paths[2])
        tokens = _read_merges(self._paths[1])
        self._size = len(SPECIAL_SYMBOLS) + len(symbols)
        self._dtype = smallest_dtype(self._size)
        self._index_of_token = _token_indices(self._paths, tokens, symbols).astype(self._dtype)
        self._bytes_of_token = np.array([len(token) for token in tokens])
        ranks = {token: rank for rank, token in enumerate(tokens)}
        self._bpe = tiktoken.Encoding("gpt2", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
        self._run = tiktoken.Encoding("run", pat_str=r"\s++", mergeable_ranks=ranks, special_tokens={})
        self._text_of_index = {UNK: b"<unk>"}
        for token, index in zip(tokens, self._index_of_token.tolist(), strict=True):
            if index != UNK:
                self._text_of_index[index] = token
        self._after_space: dict[str, bytes] = {}  # word -> the ids of " " + word
        self._verbatim: dict[str, bytes] = {}  # unit, whitespace included -> its ids

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> np.ndarray:
        text = replace_lone_surrogates(text)
        head, *words = text.split(" ")
        known = self._after_space.__getitem__
        try:
            buffer = self._verbatim[head] + b"".join(map(known, words))
        except KeyError:
            buffer = self._encode_new(text, head, words)
        return np.frombuffer(buffer, self._dtype).astype(np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        parts = [self._text_of_index.get(int(index), b"") for index in ids]
        return b"".join(parts).decode("utf-8", "replace")

    def write_dictionary(self, path: Path) -> None:
        shutil.copyfile(self._paths[2], path)

    def _write_files(self, folder: Path) -> None:
        for source, name in zip(self._paths, self.files, strict=True):
            shutil.copyfile(source, folder / name)

    @classmethod
    def from_files(cls, folder: Path) -> "GPT2Tokenizer":
        return cls(*(Path(folder) / name for name in cls.files))

    def _encode_new(self, text: str, head: str, words: list[str]) -> bytes:
        """Indices, in the dictionary's type, of a text with words not seen before, or with runs of whitespace."""
        if len(self._after_space) + len(self._verbatim) > _MAX_REMEMBERED:
            self._after_space.clear()
            self._verbatim.clear()
        new = set(itertools.filterfalse(self._after_space.__contains__, words))
        if not _DOUBLE.search(" ".join([head, *new, ""])):  # what is known has no such thing
            self._learn(self._after_space, new, prefix=" ")
            self._learn_one_by_one({head})
            return self._verbatim[head] + b"".join(map(self._after_space.__getitem__, words))
        units = _UNIT.findall(text)
        new = set(itertools.filterfalse(self._verbatim.__contains__, units))
        regular = {unit for unit in new if unit[0] in _SPACES and len(unit) <= _LONG and unit[-1] not in _SPACES}
        self._learn(self._verbatim, regular)
        self._learn_one_by_one(new - regular)
        return b"".join(map(self._verbatim.__getitem__, units))

    def _learn(self, known: dict[str, bytes], units: set[str], prefix: str = "") -> None:
        """Encodes units that have no influence on each other in one call, and finds their tokens by counting bytes."""
        if not units:
            return
        tokens = self._bpe.encode_to_numpy(prefix + prefix.join(units), disallowed_special=())
        ends_of_tokens = np.cumsum(self._bytes_of_token[tokens])
        ends_of_units = np.cumsum([len(prefix) + len(unit.encode()) for unit in units])
        cuts = (np.searchsorted(ends_of_tokens, ends_of_units) + 1) * self._dtype.itemsize
        buffer = self._index_of_token[tokens].tobytes()
        start = 0
        for unit, end in zip(units, cuts.tolist(), strict=True):
            known[unit] = buffer[start:end]
            start = end

    def _learn_one_by_one(self, units: set[str]) -> None:
        """Encodes units of any kind; a run of whitespace apart, as the pattern needs a stack as deep as it is long."""
        for unit in units.difference(self._verbatim):
            text = unit.lstrip(_SPACES)
            run = len(unit) if not text else max(0, len(unit) - len(text) - 1)
            tokens = [
                *self._run.encode_to_numpy(unit[:run], disallowed_special=()),
                *self._bpe.encode_to_numpy(unit[run:], disallowed_special=()),
            ]
            self._verbatim[unit] = self._index_of_token[np.array(tokens, dtype=np.int64)].tobytes()


def byte_symbols() -> dict[str, int]:
    """GPT-2's printable stand-in for every byte, in the order of their ranks."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _read_merges(vocab_bpe: Path) -> list[bytes]:
    """Every token as bytes: the 256 bytes, then the merges, in the order in which they are applied."""
    byte_of = byte_symbols()
    tokens = [bytes([b]) for b in byte_of.values()]
    with open(vocab_bpe, encoding="utf-8") as file:
        lines = file.read().split("\n")[1:-1]
    for number, line in enumerate(lines, 2):
        pair = line.split()
        if len(pair) != 2 or not all(char in byte_of for char in "".join(pair)):
            raise ValueError(f"{vocab_bpe}, line {number}: expected two byte-level symbols, found {line!r}")
        tokens.append(bytes(byte_of[char] for char in "".join(pair)))
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"{vocab_bpe}: two merges make the same token; this is not a GPT-2 style merge list")
    return tokens


def _token_indices(paths: Sequence[Path], tokens: list[bytes], symbols: list[str]) -> np.ndarray:
    """Dictionary index of every token (int64), ``<unk>`` where ``dict.txt`` lacks its id."""
    encoder_json, vocab_bpe, _ = paths
    with open(encoder_json, encoding="utf-8") as file:
        gpt2_ids = json.load(file)
    symbol_of_byte = {b: char for char, b in byte_symbols().items()}
    index_of_symbol = {symbol: len(SPECIAL_SYMBOLS) + k for k, symbol in enumerate(symbols)}
    indices = []
    for token in tokens:
        name = "".join(symbol_of_byte[b] for b in token)
        if name not in gpt2_ids:
            raise ValueError(f"{encoder_json}: lacks token {name!r}, which {vocab_bpe} makes; take both from one model")
        indices.append(index_of_symbol.get(str(gpt2_ids[name]), UNK))
    return np.array(indices)

"""GPT-2's byte-level BPE with fairseq's dictionary: the very ids fairseq gives, about ten times as fast.

fairseq turns text into GPT-2 ids, writes these as text, and looks every number up in ``dict.txt``. Here the merging is
tiktoken's, one table goes from a token straight to its dictionary index, and what was encoded once is remembered.

Why remembering is exact: a GPT-2 pre-token starts with at most one space and holds no other whitespace beside text, so
a token always ends before a single space that stands between two words, and nothing left of that place has a say in
what follows. Text whose whitespace is single is therefore ``split(" ")`` into units that never influence each other.
A run of two or more whitespace characters is a pre-token of its own, except that its last character goes with the text
that follows it.
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
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_DOUBLE = re.compile(rf"[{_SPACES}]{{2}}")
_RUN = re.compile(rf"[{_SPACES}]{{2,}}|[{_SPACES}]\Z")

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
        self._heads: dict[str, bytes] = {}  # first unit of a span -> its ids
        self._units: dict[str, bytes] = {}  # later unit -> the ids of " " + unit
        self._runs: dict[str, bytes] = {}  # whitespace -> its ids

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> np.ndarray:
        text = replace_lone_surrogates(text)
        span = text.split(" ")
        try:
            buffer = self._look_up(span)
        except KeyError:
            buffer = self._encode_new(text, span)
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

    def _look_up(self, span: list[str]) -> bytes:
        """Indices, in the dictionary's type, of a head and its units; KeyError where one is not known."""
        return self._heads[span[0]] + b"".join(map(self._units.__getitem__, itertools.islice(span, 1, None)))

    def _encode_new(self, text: str, span: list[str]) -> bytes:
        if len(self._heads) + len(self._units) + len(self._runs) > _MAX_REMEMBERED:
            for known in (self._heads, self._units, self._runs):
                known.clear()
        spans, runs = [span], []
        new = self._unknown_units(spans)
        if _DOUBLE.search(" ".join([span[0], *new, ""])):  # what is known has no such thing
            texts, runs = _split_at_runs(text)
            spans = [text.split(" ") for text in texts]
            new = self._unknown_units(spans)
        self._learn_units(new)
        self._learn_each(self._heads, {span[0] for span in spans}, self._bpe)
        self._learn_each(self._runs, set(runs), self._run)
        chunks = [self._look_up(spans[0])]
        for run, span in zip(runs, spans[1:], strict=True):
            chunks += [self._runs[run], self._look_up(span)]
        return b"".join(chunks)

    def _unknown_units(self, spans: list[list[str]]) -> set[str]:
        units = itertools.chain.from_iterable(itertools.islice(span, 1, None) for span in spans)
        return set(itertools.filterfalse(self._units.__contains__, units))

    def _learn_each(self, known: dict[str, bytes], texts: set[str], encoding: tiktoken.Encoding) -> None:
        for text in texts.difference(known):
            known[text] = self._index_of_token[encoding.encode_to_numpy(text, disallowed_special=())].tobytes()

    def _learn_units(self, units: set[str]) -> None:
        """Encodes new units in one call, and finds where each one's tokens end by counting bytes."""
        if not units:
            return
        tokens = self._bpe.encode_to_numpy(" " + " ".join(units), disallowed_special=())
        ends_of_tokens = np.cumsum(self._bytes_of_token[tokens])
        ends_of_units = np.cumsum([1 + len(unit.encode()) for unit in units])
        cuts = (np.searchsorted(ends_of_tokens, ends_of_units) + 1) * self._dtype.itemsize
        buffer = self._index_of_token[tokens].tobytes()
        start = 0
        for unit, end in zip(units, cuts.tolist(), strict=True):
            self._units[unit] = buffer[start:end]
            start = end


def _split_at_runs(text: str) -> tuple[list[str], list[str]]:
    """Spans without runs of whitespace, and the runs between them, shorn of the character that goes with what follows.

    No span ends in whitespace. Spans and runs in turn make up the text: one span more than runs, some of them empty.
    """
    spans, runs, start = [], [], 0
    for match in _RUN.finditer(text):
        spans.append(text[start : match.start()])
        start = match.end() if match.end() == len(text) else match.end() - 1
        runs.append(text[match.start() : start])
    return [*spans, text[start:]], runs


def _byte_symbols() -> dict[str, int]:
    """GPT-2's printable stand-in for every byte, in the order of their ranks."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _read_merges(vocab_bpe: Path) -> list[bytes]:
    """Every token as bytes: the 256 bytes, then the merges, in the order in which they are applied."""
    byte_of = _byte_symbols()
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
    symbol_of_byte = {b: char for char, b in _byte_symbols().items()}
    index_of_symbol = {symbol: len(SPECIAL_SYMBOLS) + k for k, symbol in enumerate(symbols)}
    indices = []
    for token in tokens:
        name = "".join(symbol_of_byte[b] for b in token)
        if name not in gpt2_ids:
            raise ValueError(f"{encoder_json}: lacks token {name!r}, which {vocab_bpe} makes; take both from one model")
        indices.append(index_of_symbol.get(str(gpt2_ids[name]), UNK))
    return np.array(indices)

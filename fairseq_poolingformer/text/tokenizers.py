"""Text to dictionary indices and back, rebuilt from a data folder alone.

A data folder holds ``tokenizer/``: ``config.json`` with the kind, and the files of that kind. This module imports
neither torch nor fairseq.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from fairseq_poolingformer.text.data_folder import tokenizer_config, tokenizer_path
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, UNK
from fairseq_poolingformer.text.gpt2_bpe import GPT2Tokenizer
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import placed
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import (
    GPT2,
    SENTENCEPIECE,
    SPARE_SYMBOL,
    Blanks,
    Tokenizer,
    TokenizerConfig,
)

__all__ = ["GPT2Tokenizer", "SentencePieceTokenizer", "Tokenizer", "fingerprint", "load_tokenizer"]


SPACE = "\u2581"  # stands for a space in sentencepiece's pieces
STRETCH = 2000  # characters, about


class SentencePieceTokenizer(Tokenizer):
    """A sentencepiece model; the dictionary's symbols are its pieces, in the model's order.

    fairseq's four special symbols come first and replace the model's own control symbols (``<s>``, ``</s>``,
    ``<pad>``) and its unknown piece.

    A text is segmented in stretches, cut at white space that no piece crosses: sentencepiece sums the scores of a whole
    text in float32, and far into a long document a sum has too few digits left to tell two segmentations of a word
    apart, so the same word would get other pieces there than at the beginning.
    """

    files = ("sentencepiece.model",)
    config = TokenizerConfig(SENTENCEPIECE)

    def __init__(self, model: Path):
        self._proto = Path(model).read_bytes()
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._proto)
        except RuntimeError as error:
            reason = ascii(" ".join(str(error).split())[:200])[1:-1]  # it quotes what the file holds
            raise ValueError(f"{model}: not a sentencepiece model ({reason})") from None
        processor = self._processor
        pieces = range(processor.get_piece_size())
        self._pieces = [p for p in pieces if not (processor.is_control(p) or processor.is_unknown(p))]
        self._index_of_piece = np.full(len(pieces), UNK)
        self._index_of_piece[self._pieces] = np.arange(len(self._pieces)) + len(SPECIAL_SYMBOLS)
        self._is_space = np.array([not processor.id_to_piece(p).strip(SPACE) for p in pieces])
        self._cut = _cut_of(processor, [processor.id_to_piece(piece) for piece in self._pieces])
        self._blanks = Blanks(lambda char: not processor.normalize(char).strip(f" {SPACE}"))

    def __len__(self) -> int:
        return len(SPECIAL_SYMBOLS) + len(self._pieces)

    def encode(self, text: str) -> np.ndarray:
        text = replace_lone_surrogates(text)
        pieces = [self._processor.encode(stretch, out_type=int) for _, stretch in self._stretches(text)]
        return self._index_of_piece[np.array(list(itertools.chain(*pieces)), dtype=np.int64)]

    def _stretches(self, text: str) -> Iterator[tuple[int, str]]:
        """The stretches of a text and where they begin; the white space between two is in neither."""
        begin = 0
        while self._cut is not None and (cut := self._cut.search(text, begin + STRETCH)):
            yield begin, text[begin : cut.start()]
            begin = cut.end()
        yield begin, text[begin:]

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        text = replace_lone_surrogates(text)
        pieces, starts, ends = self._pieces_with_offsets(text)
        starts = self._blanks.skip(text, starts, ends)
        # of several tokens that make one character, sentencepiece gives the last one its bytes, the others none
        full = np.append(np.flatnonzero(ends > starts), len(pieces))
        following = full[np.searchsorted(full, np.arange(len(pieces)))]
        inside = (ends == starts) & ~self._is_space[pieces] & (following < len(pieces))
        starts[inside], ends[inside] = starts[following[inside]], ends[following[inside]]
        # A character may even stand for several words, such as U+FDFA: the spaces between them are a part of it, too.
        return self._index_of_piece[pieces], np.maximum.accumulate(starts), np.maximum.accumulate(ends)

    def _pieces_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The model's piece numbers, and the bytes of the text from which each begins and ends."""
        ids, offsets, before, place = [], [], 0, 0
        for begin, stretch in self._stretches(text):
            before += len(text[place:begin].encode())
            mapping = self._processor.encode(stretch, return_type="offset_mapping", return_bytes=True)
            ids += mapping["ids"]
            offsets.append(np.array(mapping["offsets"], dtype=np.int64).reshape(-1, 2) + before)
            before, place = before + len(stretch.encode()), begin + len(stretch)
        starts, ends = np.concatenate(offsets).T
        return np.array(ids, dtype=np.int64), starts, ends

    def decode(self, ids: Sequence[int]) -> str:
        first = len(SPECIAL_SYMBOLS)
        pieces = []
        for index in map(int, ids):
            if first <= index < len(self):
                pieces.append(self._pieces[index - first])
            elif index == UNK:
                pieces.append(self._processor.unk_id())
        return self._processor.decode(pieces)

    def spare_symbols(self) -> list[int]:
        """See the base class; a model has such pieces only where its maker defined them."""
        names = map(self._processor.id_to_piece, self._pieces)
        return [len(SPECIAL_SYMBOLS) + number for number, name in enumerate(names) if SPARE_SYMBOL.fullmatch(name)]

    def symbol_texts(self) -> list[bytes]:
        return [b""] * len(SPECIAL_SYMBOLS) + list(map(self._piece_text, self._pieces))

    def _piece_text(self, piece: int) -> bytes:
        name = self._processor.id_to_piece(piece)
        if self._processor.is_byte(piece):
            return bytes.fromhex(name[3:5])  # <0xE4>
        return b"" if SPARE_SYMBOL.fullmatch(name) else name.replace(SPACE, " ").encode()

    def write_dictionary(self, path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for piece in self._pieces:
                name = self._processor.id_to_piece(piece)
                # The one thing that fairseq's reader cannot take inside a symbol is the end of a line.
                symbol = f"<piece{piece}>" if "\n" in name or "\r" in name else name
                file.write(f"{symbol} 1\n")

    def _write_files(self, folder: Path) -> None:
        (folder / self.files[0]).write_bytes(self._proto)

    @classmethod
    def from_files(cls, folder: Path, config: TokenizerConfig = config) -> "SentencePieceTokenizer":
        return cls(Path(folder) / cls.files[0])


def _cut_of(processor: sentencepiece.SentencePieceProcessor, names: list[str]) -> re.Pattern | None:
    """Where a text may be cut: at white space between two words that a model reads alone as it does side by side."""
    read = processor.normalize
    if any(SPACE in name.lstrip(SPACE) for name in names) or (read("a b"), read(" a ")) != (
        read("a") + read("b"),
        read("a"),
    ):
        return None
    blanks = "".join(char for char in " \t\n\r" if read(f"a{char}b") == read("a b"))
    return re.compile(rf"(?<=\w)[{re.escape(blanks)}]+(?=\w)")


_CLASSES: dict[str, type[Tokenizer]] = {GPT2: GPT2Tokenizer, SENTENCEPIECE: SentencePieceTokenizer}


def load_tokenizer(data_folder: Path) -> Tokenizer:
    """Load the tokenizer that made a data folder."""
    path = tokenizer_config(data_folder)
    config = _read(path)
    return _CLASSES[config.kind].from_files(path.parent, config)


def tokenizer_files(data_folder: Path) -> list[Path]:
    """The files that the tokenizer of a folder needs, ``config.json`` last; none where there is no tokenizer."""
    path = tokenizer_path(data_folder) / "config.json"
    return [*map(path.with_name, _CLASSES[_read(path).kind].files), path] if path.is_file() else []


def _read(path: Path) -> TokenizerConfig:
    with placed(path):
        return TokenizerConfig.of(read_json_file(path))


def is_saved(data_folder: Path) -> bool:
    """Whether a folder holds a tokenizer; ``config.json`` is its last file to be written."""
    return (tokenizer_path(data_folder) / "config.json").is_file()


def fingerprint(data_folder: Path) -> str:
    """Digest everything that decides the ids of a saved tokenizer (SHA-256, hexadecimal)."""
    digest = hashlib.sha256()
    for path in sorted(tokenizer_path(data_folder).iterdir()):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()

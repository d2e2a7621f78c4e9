"""GPT-2 byte-level BPE: Hugging Face's tokenizer files to fairseq's three and back.

Hugging Face's ``vocab.json`` maps a token to its embedding row. fairseq does so in two steps: ``encoder.json`` maps the
token to OpenAI's id, and line k of ``dict.txt`` has the id of embedding row 4 + k. OpenAI's ids need no file: the 256
bytes come first, then one token for each merge in the order of ``vocab.bpe``, then ``<|endoftext|>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS
from fairseq_poolingformer.text.gpt2_bpe import byte_symbols
from fairseq_poolingformer.weights import ConversionError

MASK = "<mask>"
FILLER = "madeupword"  # fairseq's name for rows that only round up the size of a dictionary
END_OF_TEXT = "<|endoftext|>"
VERSION = "#version: 0.2"


@dataclass(frozen=True)
class GPT2Files:
    """fairseq's GPT-2 BPE.

    Attributes:
        merges: pairs "a b", the first merged first.
        encoder: token -> OpenAI's id.
        symbols: ``dict.txt`` without the counts: the symbols of embedding rows 4, 5, ….
    """

    merges: list[str]
    encoder: dict[str, int]
    symbols: list[str]


def encoder_of(merges: Iterable[str], vocab: Mapping[str, int]) -> dict[str, int]:
    """Return OpenAI's ``encoder.json`` for the merges, with ``<|endoftext|>`` only if the vocabulary has it."""
    tokens = [*byte_symbols(), *(merge.replace(" ", "") for merge in merges)]
    if END_OF_TEXT in vocab:
        tokens.append(END_OF_TEXT)
    encoder = {token: i for i, token in enumerate(tokens)}
    if len(encoder) != len(tokens):
        raise ConversionError("the tokenizer's merges make the same token twice, so it is not GPT-2's BPE")
    return encoder


def to_fairseq_files(vocab: Mapping[str, int], merges: list[str], rows: int) -> GPT2Files:
    """Return the files with which fairseq gives every token the row that ``vocab`` gives it.

    Args:
        vocab: token -> embedding row, added tokens included.
        merges: pairs "a b", the first merged first.
        rows: rows of the embedding; a row without a token becomes a ``madeupword`` symbol.

    Returns:
        The files. They leave out a ``<mask>`` in the last row, as fairseq's own ``dict.txt`` does: fairseq's denoising
        task adds it, and fairseq's BART drops that row for other tasks.

    Raises:
        ConversionError: the vocabulary cannot be a fairseq dictionary.
    """
    if vocab.get(MASK) == rows:  # bart-large-cnn: the tokenizer kept <mask>, the model dropped its row
        vocab = {token: row for token, row in vocab.items() if token != MASK}
    token_of = {row: token for token, row in vocab.items()}
    if len(token_of) != len(vocab):
        raise ConversionError("the vocabulary has two tokens with one id: repair vocab.json, or download it again")
    found = tuple(token_of.get(row) for row in range(len(SPECIAL_SYMBOLS)))
    if found != SPECIAL_SYMBOLS:
        raise ConversionError(f"rows 0-3 are {found}; fairseq's dictionary needs {SPECIAL_SYMBOLS} there")
    if max(token_of) >= rows:
        raise ConversionError(f"the vocabulary goes up to id {max(token_of)}, but the embedding has {rows} rows")
    encoder = encoder_of(merges, vocab)
    symbols = []
    for row in range(len(SPECIAL_SYMBOLS), rows):
        token = token_of.get(row, f"{FILLER}{row:06d}")
        symbols.append(str(encoder[token]) if token in encoder else token)
    if symbols and symbols[-1] == MASK:
        symbols.pop()
    odd = sorted(s for s in symbols if not s or any(c.isspace() for c in s))
    if odd or len(set(symbols)) != len(symbols):
        raise ConversionError(f"the vocabulary cannot be written as dict.txt: empty, spaced or repeated tokens {odd}")
    return GPT2Files(merges, encoder, symbols)


def to_huggingface_vocab(files: GPT2Files, rows: int) -> dict[str, int]:
    """Return token -> embedding row; this undoes :func:`to_fairseq_files`.

    Args:
        files: fairseq's files.
        rows: rows of the embedding: one for each symbol and special symbol, and possibly one for ``<mask>``.

    Returns:
        The contents of ``vocab.json``.

    Raises:
        ConversionError: the dictionary has another size than the embedding, or gives a token two rows.
    """
    token_of = {str(i): token for token, i in files.encoder.items()}
    tokens = [*SPECIAL_SYMBOLS, *(token_of.get(symbol, symbol) for symbol in files.symbols)]
    if len(tokens) == rows - 1 and MASK not in tokens:
        tokens.append(MASK)
    if len(tokens) != rows:
        raise ConversionError(
            f"dict.txt makes {len(tokens)} symbols with fairseq's own four, but the embedding has {rows} rows: "
            "it is not the dictionary that the checkpoint was trained with. Give that one's folder with --tokenizer"
        )
    vocab = {token: row for row, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ConversionError("dict.txt and encoder.json give one token two rows")
    return vocab


def added_tokens(files: GPT2Files) -> list[str]:
    """Return the symbols at which text is split before BPE: all but BPE's own, ``<mask>`` and fillers."""
    ids = {str(i) for i in files.encoder.values()}
    return [s for s in files.symbols if s not in ids and s != MASK and not s.startswith(FILLER)]


def check_mask(files: GPT2Files, rows: int) -> None:
    """Check that the embedding has a row for each symbol and for ``<mask>``, as masked language modelling needs.

    Raises:
        ConversionError: the embedding has another number of rows.
    """
    symbols = len(SPECIAL_SYMBOLS) + len(files.symbols) + (MASK not in files.symbols)
    if symbols != rows:
        raise ConversionError(f"the tokenizer makes {symbols} symbols with {MASK}, the embedding has {rows} rows")


def check_same(ours: GPT2Files, original: GPT2Files) -> None:
    """Check that a folder of original GPT-2 BPE files equals the converted tokenizer.

    Raises:
        ConversionError: merges, ids or rows differ; the message gives the first difference.
    """
    for name, mine, theirs in (
        ("vocab.bpe", ours.merges, original.merges),
        ("encoder.json", sorted(ours.encoder.items()), sorted(original.encoder.items())),
        ("dict.txt", ours.symbols, original.symbols),
    ):
        if mine != theirs:
            length = min(len(mine), len(theirs))
            at = next((i for i in range(length) if mine[i] != theirs[i]), length)
            raise ConversionError(
                f"{name} of the GPT-2 BPE folder is not this model's: entry {at} is {theirs[at : at + 1]}, "
                f"the model's tokenizer has {mine[at : at + 1]}"
            )


def parse_merges(text: str) -> list[str]:
    """Return the merges of ``vocab.bpe`` or ``merges.txt``, without the version line."""
    lines = text.split("\n")
    if lines[0].startswith("#version"):
        lines = lines[1:]
    merges = [line for line in lines if line.strip()]
    for line in merges:
        if line.count(" ") != 1:
            raise ConversionError(f"not a merge of two tokens: {line!r}")
    return merges


def format_merges(merges: Iterable[str]) -> str:
    """Return ``vocab.bpe``, also Hugging Face's ``merges.txt``, with the version line that fairseq skips."""
    return "\n".join([VERSION, *merges, ""])


def format_dictionary(symbols: Iterable[str]) -> str:
    """Return ``dict.txt``; the counts are 0, since they are unknown and nothing reads them."""
    return "".join(f"{symbol} 0\n" for symbol in symbols)

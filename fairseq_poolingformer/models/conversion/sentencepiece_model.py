"""XLM-R's tokenizer: one sentencepiece model on both sides, whose pieces both put after four special symbols.

Hugging Face gives row k + 1 to the model's piece k from 3 on, since the model's own first three are ``<unk>``, ``<s>``
and ``</s>``, and the last row to ``<mask>``. fairseq's dictionary lists the same pieces, and its tasks add ``<mask>``.
"""

from __future__ import annotations

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from fairseq_poolingformer.models.conversion import files, unigram
from fairseq_poolingformer.models.conversion.family import ConversionError
from fairseq_poolingformer.models.conversion.gpt2_bpe import MASK
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer

HUGGINGFACE_NAME = "sentencepiece.bpe.model"
NAMES = (HUGGINGFACE_NAME, *SentencePieceTokenizer.files)
OWN_PIECES = 3  # <unk>, <s>, </s>: the first of every model that Hugging Face's XLM-R can use


def find(folder: Path) -> Path | None:
    """Return the sentencepiece model of a Hugging Face folder, or of a ``tokenizer`` folder; None without one."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def rebuild(source: Path, folder: Path) -> Path | None:
    """Write the sentencepiece model of a Hugging Face folder that has only ``tokenizer.json`` of it.

    Args:
        source: the Hugging Face folder.
        folder: where :func:`write_fairseq` will write too; the model is written where that puts it.

    Returns:
        The path of the model; None where the folder has another kind of tokenizer.

    Raises:
        ConversionError: the tokenizer cannot be expressed as a sentencepiece model.
    """
    path = source / "tokenizer.json"
    tokenizer = files.read_json(path) if path.is_file() else {}
    if not unigram.is_unigram(tokenizer):
        return None
    model = folder / "tokenizer" / SentencePieceTokenizer.files[0]
    model.parent.mkdir()
    model.write_bytes(unigram.sentencepiece_model(path, tokenizer))
    return model


def write_fairseq(folder: Path, model: Path, rows: int, dictionaries: tuple[str, ...]) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder.

    Args:
        folder: where to.
        model: the sentencepiece model.
        rows: rows of the embedding.
        dictionaries: names of the dictionary's files.

    Raises:
        ConversionError: the model's pieces are not those of the embedding's rows.
    """
    tokenizer = _read(model, rows)
    tokenizer.save(folder)
    for name in dictionaries:
        tokenizer.write_dictionary(folder / name)


def write_huggingface(folder: Path, model: Path, rows: int, max_length: int) -> None:
    """Write ``sentencepiece.bpe.model`` and ``tokenizer_config.json``.

    Args:
        folder: where to.
        model: the sentencepiece model.
        rows: rows of the embedding.
        max_length: tokens that the encoder takes.

    Raises:
        ConversionError: the model's pieces are not those of the embedding's rows.
    """
    _read(model, rows)
    (folder / HUGGINGFACE_NAME).write_bytes(model.read_bytes())
    files.write_tokenizer_config(
        folder, tokenizer_class="XLMRobertaTokenizer", model_max_length=max_length, mask_token=files.MASK_TOKEN
    )


def _read(model: Path, rows: int) -> SentencePieceTokenizer:
    try:
        tokenizer = SentencePieceTokenizer(model)
    except ValueError as error:
        raise ConversionError(str(error)) from error
    processor = SentencePieceProcessor(model_file=str(model))
    first = [processor.id_to_piece(piece) for piece in range(min(OWN_PIECES, len(processor)))]
    named = processor.is_unknown(0) and all(processor.is_control(piece) for piece in range(1, len(first)))
    ordinary = len(tokenizer) - len(files.SPECIAL_SYMBOLS)
    if not named or ordinary != len(processor) - OWN_PIECES:
        raise ConversionError(
            f"{model}: its first pieces are {first}, and {len(processor) - ordinary} are no text; Hugging Face's XLM-R "
            "needs <unk>, <s> and </s> first and no others of that kind, or it would give the pieces other rows"
        )
    if len(tokenizer) + 1 != rows:
        raise ConversionError(
            f"{model} has {ordinary} pieces, which make {len(tokenizer) + 1} rows with the four special symbols and "
            f"{MASK}; the embedding has {rows} rows: it is not the tokenizer that the model was trained with"
        )
    return tokenizer

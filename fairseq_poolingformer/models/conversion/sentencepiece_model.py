"""XLM-R's tokenizer: both sides use one sentencepiece model and put its pieces after four special symbols.

Hugging Face gives piece k row k + 1 from k = 3 on, since the model's first three pieces are ``<unk>``, ``<s>`` and
``</s>``. The last row is ``<mask>``. fairseq's dictionary lists the same pieces, and fairseq's tasks add ``<mask>``.
"""

from __future__ import annotations

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from fairseq_poolingformer.models.conversion import files, tokenizer_files, unigram
from fairseq_poolingformer.models.conversion.family import ConversionError
from fairseq_poolingformer.models.conversion.gpt2_bpe import MASK
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer

HUGGINGFACE_NAME = "sentencepiece.bpe.model"
NAMES = (HUGGINGFACE_NAME, *SentencePieceTokenizer.files)
OWN_PIECES = 3  # <unk>, <s>, </s>: the first of every model that Hugging Face's XLM-R can use


def find(folder: Path) -> Path | None:
    """Return the sentencepiece model of a Hugging Face folder, or of a ``tokenizer`` folder; None without one."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def rebuild(source: Path, folder: Path) -> Path | None:
    """Rebuild the sentencepiece model of a Hugging Face folder that has only ``tokenizer.json``.

    Args:
        source: the Hugging Face folder.
        folder: the folder that :func:`write_fairseq` will write into; the model goes where that function puts it.

    Returns:
        The path of the model; None if the folder has another kind of tokenizer.

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
        folder: the folder to write into.
        model: the sentencepiece model.
        rows: rows of the embedding.
        dictionaries: names of the dictionary's files.

    Raises:
        ConversionError: the model's pieces do not fit the rows of the embedding.
    """
    tokenizer = _read(model, rows)
    tokenizer.save(folder)
    for name in dictionaries:
        tokenizer.write_dictionary(folder / name)


def write_huggingface(folder: Path, model: Path, rows: int, max_length: int) -> None:
    """Write ``sentencepiece.bpe.model`` and ``tokenizer_config.json``, for transformers' XLM-R.

    Models with bytes, and embeddings without a row for ``<mask>``, have no class of their own there: for these,
    ``sentencepiece.model`` and a ``tokenizer.json``.

    Args:
        folder: the folder to write into.
        model: the sentencepiece model.
        rows: rows of the embedding.
        max_length: tokens that the encoder takes.

    Raises:
        ConversionError: the model's pieces do not fit the rows of the embedding.
    """
    tokenizer = _read(model, rows)
    if len(tokenizer) == rows or unigram.has_bytes(model):
        has_mask = len(tokenizer) < rows
        contents = unigram.tokenizer_json(model, has_mask)
        (folder / SentencePieceTokenizer.files[0]).write_bytes(model.read_bytes())
        files.write_json(folder / "tokenizer.json", contents)
        tokenizer_files.write_tokenizer_config(
            folder,
            tokenizer_class="PreTrainedTokenizerFast",
            model_max_length=max_length,
            mask_token=tokenizer_files.MASK_TOKEN if has_mask else None,
        )
        return
    (folder / HUGGINGFACE_NAME).write_bytes(model.read_bytes())
    tokenizer_files.write_tokenizer_config(
        folder,
        tokenizer_class="XLMRobertaTokenizer",
        model_max_length=max_length,
        mask_token=tokenizer_files.MASK_TOKEN,
    )


def _read(model: Path, rows: int) -> SentencePieceTokenizer:
    try:
        tokenizer = SentencePieceTokenizer(model)
    except ValueError as error:
        raise ConversionError(str(error)) from error
    processor = SentencePieceProcessor(model_file=str(model))
    first = [processor.id_to_piece(piece) for piece in range(min(OWN_PIECES, len(processor)))]
    named = processor.is_unknown(0) and all(processor.is_control(piece) for piece in range(1, len(first)))
    ordinary = len(tokenizer) - len(SPECIAL_SYMBOLS)
    if not named or ordinary != len(processor) - OWN_PIECES:
        raise ConversionError(
            f"{model}: its first pieces are {first}, and {len(processor) - ordinary} pieces are not text; Hugging "
            "Face's XLM-R needs <unk>, <s> and </s> first and no others of that kind, or it gives the pieces other rows"
        )
    if rows - len(tokenizer) not in (0, 1):  # models that only write have no row for <mask>
        raise ConversionError(
            f"{model} has {ordinary} pieces, which make {len(tokenizer) + 1} rows with the four special symbols and "
            f"{MASK}, but the embedding has {rows} rows: it is not the tokenizer that the model was trained with"
        )
    return tokenizer

"""XLM-R's and mBART's tokenizer: both sides use one sentencepiece model, its pieces after four special symbols.

Hugging Face gives piece k row k + 1 from k = 3 on, since the model's first three pieces are ``<unk>``, ``<s>`` and
``</s>``. The last row is ``<mask>``. fairseq's dictionary lists the same pieces, and fairseq's tasks add ``<mask>``.
mBART has its languages before ``<mask>``: ``en_XX`` in Hugging Face's tokenizer, ``[en_XX]`` in fairseq's dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from fairseq_poolingformer.text.dictionary import MARKS, SPECIAL_SYMBOLS
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer
from fairseq_poolingformer.weights import ConversionError, files, gpt2_bpe, unigram
from fairseq_poolingformer.weights.gpt2_bpe import MASK_TOKEN
from fairseq_poolingformer.weights.marks import MASK, appended

HUGGINGFACE_NAME = "sentencepiece.bpe.model"
NAMES = (HUGGINGFACE_NAME, *SentencePieceTokenizer.files)
LANGUAGES = (  # of mBART's first release, in the order of their rows
    *("ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX"),
    *("kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN"),
    "zh_CN",
)
OWN_PIECES = 3  # <unk>, <s>, </s>: the first of every model that Hugging Face's XLM-R can use


def find(folder: Path) -> Path | None:
    """Return the sentencepiece model of a Hugging Face folder, or of a ``tokenizer`` folder; None without one."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def rebuild(source: Path, folder: Path) -> Path | None:
    """Rebuild the sentencepiece model of a Hugging Face folder that has only ``tokenizer.json``."""
    path = source / "tokenizer.json"
    tokenizer = files.read_json(path) if path.is_file() else {}
    if not unigram.is_unigram(tokenizer):
        return None
    model = folder / "tokenizer" / SentencePieceTokenizer.files[0]
    model.parent.mkdir()
    model.write_bytes(unigram.sentencepiece_model(path, tokenizer))
    return model


def languages_of(source: Path, model: Path, rows: int) -> Sequence[str]:
    """Return the languages of a Hugging Face folder of mBART's, in the order of their rows."""
    first = len(_tokenizer(model))
    count = rows - 1 - first
    if count <= 0:
        return ()
    if count == len(LANGUAGES):
        return LANGUAGES
    path = source / "tokenizer.json"
    contents = files.read_json(path) if path.is_file() else {}
    named = {token["id"]: token["content"] for token in contents.get("added_tokens", [])}
    found = [named.get(row, "") for row in range(first, rows - 1)]
    if not all(map(unigram.LANGUAGE.fullmatch, found)):
        raise ConversionError(
            f"{source} has {count} rows between the pieces of {model.name} and {MASK}, and no tokenizer.json that "
            "names their languages: save the model's tokenizer with transformers into this folder"
        )
    return found


def write_fairseq(
    folder: Path, model: Path, rows: int, dictionaries: tuple[str, ...], languages: Sequence[str] = ()
) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder."""
    tokenizer = _read(model, rows, languages)
    tokenizer.save(folder)
    for name in dictionaries:
        tokenizer.write_dictionary(folder / name)
        with (folder / name).open("a", encoding="utf-8") as file:
            file.writelines(f"[{language}] 1\n" for language in languages)


def write_huggingface(folder: Path, model: Path, rows: int, max_length: int, languages: Sequence[str] = ()) -> None:
    """Write ``sentencepiece.bpe.model`` and ``tokenizer_config.json``, for transformers' XLM-R.

    Models with bytes, and embeddings without a row for ``<mask>``, have no class there, and mBART's class forgets the
    model's normalization: for these, ``sentencepiece.model`` and a ``tokenizer.json``.
    """
    tokenizer = _read(model, rows, languages)
    has_mask = len(tokenizer) + len(languages) < rows
    has_marks = len(tokenizer) + len(languages) + 1 < rows
    if languages or not has_mask or unigram.has_bytes(model):
        contents = unigram.tokenizer_json(model, languages, has_mask)
        (folder / SentencePieceTokenizer.files[0]).write_bytes(model.read_bytes())
        files.write_json(folder / "tokenizer.json", contents)
        gpt2_bpe.write_tokenizer_config(
            folder,
            tokenizer_class="PreTrainedTokenizerFast",
            model_max_length=max_length,
            mask_token=MASK_TOKEN if has_mask else None,
        )
        return
    (folder / HUGGINGFACE_NAME).write_bytes(model.read_bytes())
    gpt2_bpe.write_tokenizer_config(
        folder,
        tokenizer_class="XLMRobertaTokenizer",
        model_max_length=max_length,
        mask_token=MASK_TOKEN,
        **({"additional_special_tokens": list(MARKS)} if has_marks else {}),
    )


def _tokenizer(model: Path) -> SentencePieceTokenizer:
    try:
        return SentencePieceTokenizer(model)
    except ValueError as error:
        raise ConversionError(str(error)) from error


def _read(model: Path, rows: int, languages: Sequence[str]) -> SentencePieceTokenizer:
    tokenizer = _tokenizer(model)
    processor = SentencePieceProcessor(model_file=str(model))
    first = [processor.id_to_piece(piece) for piece in range(min(OWN_PIECES, len(processor)))]
    named = processor.is_unknown(0) and all(processor.is_control(piece) for piece in range(1, len(first)))
    ordinary = len(tokenizer) - len(SPECIAL_SYMBOLS)
    if not named or ordinary != len(processor) - OWN_PIECES:
        raise ConversionError(
            f"{model}: its first pieces are {first}, and {len(processor) - ordinary} pieces are not text; Hugging "
            "Face's XLM-R needs <unk>, <s> and </s> first and no others of that kind, or it gives the pieces other rows"
        )
    if appended(rows - len(tokenizer) - len(languages)) is None:  # models that only write have no row for <mask>
        raise ConversionError(
            f"{model} has {ordinary} pieces, which make {len(tokenizer) + len(languages) + 1} rows with the four "
            f"special symbols, {len(languages)} languages and {MASK}, but the embedding has {rows} rows: it is not the "
            "tokenizer that the model was trained with"
        )
    return tokenizer

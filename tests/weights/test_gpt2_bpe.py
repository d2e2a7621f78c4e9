"""The tokenizer half of the converter: every token keeps its embedding row."""

import json
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from transformers import AutoTokenizer, BartTokenizer

from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import ConversionError, gpt2_bpe
from fairseq_poolingformer.weights.convert import FAMILIES
from tests.models import tiny_huggingface

ORIGINAL = Path(__file__).parents[3] / "shared" / "data" / "gpt2_bpe"
TEXTS = [
    "the thing in there",
    " The  theater,\n\n it's    naïve café — 東京 🙂 ",
    "x²+y³ = 3.14 \t don't\u00a0stop",
    "",
]


def fairseq_ids(folder: Path, text: str) -> list[int]:
    """The ids that fairseq's own encoder and dictionary give a text."""
    tokenizer = folder / "tokenizer"
    bpe = GPT2BPE(GPT2BPEConfig(gpt2_encoder_json=f"{tokenizer}/encoder.json", gpt2_vocab_bpe=f"{tokenizer}/vocab.bpe"))
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    return dictionary.encode_line(bpe.encode(text), add_if_not_exist=False, append_eos=False).tolist()


def convert(source: Path, output: Path, rows: int) -> Path:
    output.mkdir()
    gpt2_bpe.write_gpt2_files(output, gpt2_bpe.to_fairseq_files(*gpt2_bpe.read_huggingface_tokenizer(source), rows))
    return output


def write_vocab(folder: Path, vocab: dict[str, int], merges: list[str]) -> Path:
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(gpt2_bpe.format_merges(merges), encoding="utf-8")
    return folder


def check_ids(source: Path, converted: Path) -> None:
    """Hugging Face, fairseq and this package's tokenizer give the same ids."""
    tokenizer = BartTokenizer.from_pretrained(source)
    ours = load_tokenizer(converted)
    for text in TEXTS:
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert fairseq_ids(converted, text) == expected
        assert ours.encode(text).tolist() == expected


def test_tiny_vocabulary_keeps_every_row(tmp_path):
    vocab = tiny_huggingface.vocabulary()
    source = write_vocab(tmp_path / "hf", vocab, tiny_huggingface.MERGES)
    converted = convert(source, tmp_path / "fairseq", len(vocab))
    check_ids(source, converted)
    dictionary = Dictionary.load(str(converted / "dict.txt"))
    assert len(dictionary) == len(vocab) - 1  # without <mask>, as fairseq's own dict.txt
    assert dictionary.add_symbol("<mask>") == vocab["<mask>"]
    assert dictionary.index("madeupword0000") == vocab["madeupword0000"]
    back = gpt2_bpe.read_gpt2_files(converted / "tokenizer")
    assert gpt2_bpe.to_huggingface_vocab(back, len(vocab)) == vocab
    assert back.merges == tiny_huggingface.MERGES


def test_tokenizer_json_alone_is_enough(tmp_path):
    vocab = tiny_huggingface.vocabulary()
    source = write_vocab(tmp_path / "hf", vocab, tiny_huggingface.MERGES)
    BartTokenizer.from_pretrained(source).save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new" / "vocab.json").exists()
    assert gpt2_bpe.read_huggingface_tokenizer(tmp_path / "new") == gpt2_bpe.read_huggingface_tokenizer(source)


def test_tokens_added_after_mask_keep_their_rows(tmp_path):
    vocab = tiny_huggingface.vocabulary()
    rows = len(vocab)
    source = write_vocab(tmp_path / "hf", vocab, tiny_huggingface.MERGES)
    (source / "added_tokens.json").write_text(json.dumps({"<doc-sep>": rows}), encoding="utf-8")
    converted = convert(source, tmp_path / "fairseq", rows + 3)  # two rows that no token has
    dictionary = Dictionary.load(str(converted / "dict.txt"))
    assert len(dictionary) == rows + 3
    assert dictionary.index("<doc-sep>") == rows
    assert dictionary.index("<mask>") == rows - 1

    back = gpt2_bpe.read_gpt2_files(converted / "tokenizer")
    folder = tmp_path / "back"
    folder.mkdir()
    gpt2_bpe.write_huggingface_tokenizer(
        folder, gpt2_bpe.to_huggingface_vocab(back, rows + 3), back, FAMILIES["bart"], 40
    )
    tokenizer = BartTokenizer.from_pretrained(folder)
    assert tokenizer("the<doc-sep>the", add_special_tokens=False)["input_ids"].count(rows) == 1
    assert len(tokenizer) == rows + 3
    the, mask = vocab["Ġthe"], vocab["<mask>"]
    assert tokenizer("the the <mask>", add_special_tokens=False)["input_ids"][-2:] == [the, mask]


def test_dictionary_without_mask_row(tmp_path):
    """fairseq's BART drops the row of <mask> when it is fine-tuned; the tokenizer then has no such token either."""
    vocab = tiny_huggingface.vocabulary()
    made = gpt2_bpe.to_fairseq_files(vocab, tiny_huggingface.MERGES, len(vocab))
    assert gpt2_bpe.to_fairseq_files(vocab, tiny_huggingface.MERGES, len(vocab) - 1) == made
    del vocab["<mask>"]
    assert gpt2_bpe.to_huggingface_vocab(made, len(vocab)) == vocab
    gpt2_bpe.write_huggingface_tokenizer(tmp_path, vocab, made, FAMILIES["bart"], 40)
    tokenizer = BartTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == len(vocab)
    assert max(tokenizer("the <mask>")["input_ids"]) < len(vocab)


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the original GPT-2 BPE files are not here")
def test_original_files_are_rebuilt(tmp_path):
    original = gpt2_bpe.read_gpt2_files(ORIGINAL)
    vocab = gpt2_bpe.to_huggingface_vocab(original, 50265)
    assert vocab["<mask>"] == 50264
    assert vocab["Ġthe"] == 5
    source = write_vocab(tmp_path / "hf", vocab, original.merges)
    rebuilt = gpt2_bpe.to_fairseq_files(*gpt2_bpe.read_huggingface_tokenizer(source), 50265)
    assert rebuilt == original
    check_ids(source, convert(source, tmp_path / "fairseq", 50265))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"<s>": 1, "<pad>": 0}, "rows 0-3"),
        ({"two words": 300}, "embedding has 300 rows"),
        ({"two words": 299}, "cannot be written as dict.txt"),
        ({"again": 0}, "two tokens with one id"),
    ],
)
def test_vocabularies_that_fairseq_cannot_hold(change, message):
    with pytest.raises(ConversionError, match=message):
        gpt2_bpe.to_fairseq_files({**tiny_huggingface.vocabulary(), **change}, tiny_huggingface.MERGES, 300)


def test_dictionary_of_another_model():
    vocab = tiny_huggingface.vocabulary()
    made = gpt2_bpe.to_fairseq_files(vocab, tiny_huggingface.MERGES, len(vocab))
    with pytest.raises(ConversionError, match="not the dictionary that the checkpoint was trained with"):
        gpt2_bpe.to_huggingface_vocab(made, len(vocab) + 5)
    repeated = gpt2_bpe.GPT2Files([], {"a": 0}, ["0", "a"])
    with pytest.raises(ConversionError, match=r"dict\.txt and encoder\.json give one token two rows"):
        gpt2_bpe.to_huggingface_vocab(repeated, rows=6)


def test_a_dictionary_without_all_tokens(tmp_path):
    """A byte without a row is <unk>, as in fairseq, and not left out of the text; merges need all their tokens."""
    made = gpt2_bpe.to_fairseq_files(vocab := tiny_huggingface.vocabulary(), tiny_huggingface.MERGES, len(vocab))

    def write(token):
        fewer = {name: row for row, name in enumerate(name for name in vocab if name != token)}
        gpt2_bpe.write_huggingface_tokenizer(tmp_path, fewer, made, FAMILIES["bart"], 40)
        return fewer

    with pytest.raises(ConversionError, match=r"no row for 1 of the \d+ tokens of vocab.bpe, such as 'Ġthe'"):
        write("Ġthe")
    fewer, tokenizer = write("!"), AutoTokenizer.from_pretrained(tmp_path)
    expected = [fewer[token] for token in ("<s>", "a", "<unk>", "a", "</s>")]
    assert tokenizer("a!a")["input_ids"] == expected
    assert tokenizer.model_max_length == 40
    assert tokenizer.mask_token_id == fewer["<mask>"]


def test_openais_ids_are_bytes_then_merges_then_the_end_of_text():
    merges, end = tiny_huggingface.MERGES, gpt2_bpe.END_OF_TEXT
    encoder = gpt2_bpe.encoder_of(merges, {end: 7})
    assert (encoder["!"], encoder["Ġt"], encoder["Ġthe"], encoder[end]) == (0, 256, 258, 256 + len(merges))
    assert end not in gpt2_bpe.encoder_of(merges, {})


def test_a_folder_without_a_tokenizer_says_what_to_do(tmp_path):
    with pytest.raises(ConversionError, match=r"nor tokenizer\.json; save the model's tokenizer there$"):
        gpt2_bpe.read_huggingface_tokenizer(tmp_path)

"""The tokenizer half of the converter: every token keeps its embedding row."""

import json
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from transformers import AutoTokenizer, BartTokenizer

from fairseq_poolingformer.text.tokenizer_base import TokenizerConfig
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
VOCAB, MERGES = tiny_huggingface.vocabulary(), tiny_huggingface.MERGES
ROWS = len(VOCAB)


@pytest.fixture
def source(tmp_path):
    return write_vocab(tmp_path / "hf", VOCAB, MERGES)


@pytest.fixture
def gpt2():
    return gpt2_bpe.to_fairseq_files(VOCAB, MERGES, ROWS)


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
    """Ids of fairseq's own tokenizer and of ours."""
    theirs, ours, dictionary = (
        BartTokenizer.from_pretrained(source),
        load_tokenizer(converted),
        Dictionary.load(str(converted / "dict.txt")),
    )
    paths = {"gpt2_encoder_json": "encoder.json", "gpt2_vocab_bpe": "vocab.bpe"}
    bpe = GPT2BPE(GPT2BPEConfig(**{name: str(converted / "tokenizer" / file) for name, file in paths.items()}))
    for text in TEXTS:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        ids = dictionary.encode_line(bpe.encode(text), add_if_not_exist=False, append_eos=False)
        assert (ids.tolist(), ours.encode(text).tolist()) == (expected, expected)


def test_tiny_vocabulary_keeps_every_row(source, tmp_path):
    converted = convert(source, tmp_path / "fairseq", ROWS)
    check_ids(source, converted)
    dictionary = Dictionary.load(str(converted / "dict.txt"))
    assert len(dictionary) == ROWS - 1  # without <mask>, as fairseq's own dict.txt
    assert dictionary.add_symbol("<mask>") == VOCAB["<mask>"]
    assert dictionary.index("madeupword0000") == VOCAB["madeupword0000"]
    back = gpt2_bpe.read_gpt2_files(converted / "tokenizer")
    assert (gpt2_bpe.to_huggingface_vocab(back, ROWS), back.merges) == (VOCAB, MERGES)


def test_tokenizer_json_alone_is_enough(source, tmp_path):
    BartTokenizer.from_pretrained(source).save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new" / "vocab.json").exists()
    assert gpt2_bpe.read_huggingface_tokenizer(tmp_path / "new") == gpt2_bpe.read_huggingface_tokenizer(source)


@pytest.mark.parametrize("lacks_bytes", [False, True])
def test_line_breaks_that_are_read_as_blanks_stay_so_there_and_back(source, tmp_path, lacks_bytes):
    converted = convert(source, tmp_path / "fairseq", ROWS)
    config = converted / "tokenizer" / "config.json"
    config.write_text('{"kind": "gpt2", "white_space": "blank"}', encoding="utf-8")
    ours, gpt2 = load_tokenizer(converted), gpt2_bpe.read_gpt2_files(converted / "tokenizer")
    folder = tmp_path / "back"
    folder.mkdir()
    vocab = gpt2_bpe.to_huggingface_vocab(gpt2, ROWS)
    if lacks_bytes:
        vocab.pop(next(token for token in vocab if token == "\u00ff"))
    gpt2_bpe.write_huggingface_tokenizer(folder, vocab, gpt2, FAMILIES["bart"], 40)
    theirs = AutoTokenizer.from_pretrained(folder)
    for text in ("the\nthing\tin\r\n\x0b\x0c there", *TEXTS[:3]):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).tolist()
    assert theirs("the\nthe")["input_ids"] == theirs("the the")["input_ids"]
    assert gpt2_bpe.config_of(folder).white_space == "blank"
    gpt2_bpe.write_gpt2_files(tmp_path, gpt2)
    assert json.loads((tmp_path / "tokenizer" / "config.json").read_text()) == json.loads(config.read_text())


def test_texts_that_a_tokenizer_changes_otherwise_are_refused(source, tmp_path):
    BartTokenizer.from_pretrained(source).save_pretrained(tmp_path / "new")
    assert gpt2_bpe.config_of(source) == gpt2_bpe.config_of(tmp_path / "new") == TokenizerConfig("gpt2")
    path = tmp_path / "new" / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": {"type": "Lowercase"}}))
    with pytest.raises(ConversionError, match=r"has no normalizer such as .*Lowercase"):
        gpt2_bpe.config_of(tmp_path / "new")


def test_tokens_added_after_mask_keep_their_rows(source, tmp_path):
    (source / "added_tokens.json").write_text(json.dumps({"<doc-sep>": ROWS}), encoding="utf-8")
    converted, rows = tmp_path / "fairseq", ROWS + 3  # two rows that no token has
    dictionary = Dictionary.load(str(convert(source, converted, rows) / "dict.txt"))
    assert (len(dictionary), dictionary.index("<doc-sep>"), dictionary.index("<mask>")) == (rows, ROWS, ROWS - 1)
    back, folder = gpt2_bpe.read_gpt2_files(converted / "tokenizer"), tmp_path / "back"
    folder.mkdir()
    vocab = gpt2_bpe.to_huggingface_vocab(back, rows)
    gpt2_bpe.write_huggingface_tokenizer(folder, vocab, back, FAMILIES["bart"], 40)
    tokenizer = BartTokenizer.from_pretrained(folder)
    assert tokenizer("the<doc-sep>the", add_special_tokens=False)["input_ids"].count(ROWS) == 1
    assert len(tokenizer) == rows
    ids = tokenizer("the the <mask>", add_special_tokens=False)["input_ids"]
    assert ids[-2:] == [VOCAB["Ġthe"], VOCAB["<mask>"]]


def test_dictionary_without_mask_row(gpt2, tmp_path):
    """fairseq's BART drops the row of <mask> when it is fine-tuned; the tokenizer then has no such token either."""
    assert gpt2_bpe.to_fairseq_files(VOCAB, MERGES, ROWS - 1) == gpt2
    vocab = {token: row for token, row in VOCAB.items() if token != "<mask>"}
    assert gpt2_bpe.to_huggingface_vocab(gpt2, len(vocab)) == vocab
    gpt2_bpe.write_huggingface_tokenizer(tmp_path, vocab, gpt2, FAMILIES["bart"], 40)
    tokenizer = BartTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == len(vocab)
    assert max(tokenizer("the <mask>")["input_ids"]) < len(vocab)


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the original GPT-2 BPE files are not here")
def test_original_files_are_rebuilt(tmp_path):
    original = gpt2_bpe.read_gpt2_files(ORIGINAL)
    vocab = gpt2_bpe.to_huggingface_vocab(original, 50265)
    assert (vocab["<mask>"], vocab["Ġthe"]) == (50264, 5)
    source = write_vocab(tmp_path / "hf", vocab, original.merges)
    rebuilt = gpt2_bpe.to_fairseq_files(*gpt2_bpe.read_huggingface_tokenizer(source), 50265)
    assert rebuilt == original
    check_ids(source, convert(source, tmp_path / "fairseq", 50265))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpt2_bpe.to_fairseq_files({**VOCAB, "<s>": 1, "<pad>": 0}, MERGES, 300), "rows 0-3"),
        (lambda: gpt2_bpe.to_fairseq_files({**VOCAB, "two words": 300}, MERGES, 300), "embedding has 300 rows"),
        (lambda: gpt2_bpe.to_fairseq_files({**VOCAB, "two words": 299}, MERGES, 300), "cannot be written as dict.txt"),
        (lambda: gpt2_bpe.to_fairseq_files({**VOCAB, "again": 0}, MERGES, 300), "two tokens with one id"),
        (
            lambda: gpt2_bpe.to_huggingface_vocab(gpt2_bpe.to_fairseq_files(VOCAB, MERGES, ROWS), ROWS + 5),
            "not the dictionary that the checkpoint was trained with",
        ),
        (
            lambda: gpt2_bpe.to_huggingface_vocab(gpt2_bpe.GPT2Files([], {"a": 0}, ["0", "a"]), rows=6),
            r"dict\.txt and encoder\.json give one token two rows",
        ),
        (
            lambda: gpt2_bpe.read_huggingface_tokenizer(Path(__file__).parent),
            r"nor tokenizer\.json; save the model's tokenizer there$",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ConversionError, match=message):
        call()


def test_a_dictionary_without_all_tokens(gpt2, tmp_path):
    """A byte without a row is <unk>, as in fairseq, and not left out of the text; merges need all their tokens."""

    def write(token):
        fewer = {name: row for row, name in enumerate(name for name in VOCAB if name != token)}
        gpt2_bpe.write_huggingface_tokenizer(tmp_path, fewer, gpt2, FAMILIES["bart"], 40)
        return fewer

    with pytest.raises(ConversionError, match=r"no row for 1 of the \d+ tokens of vocab.bpe, such as 'Ġthe'"):
        write("Ġthe")
    fewer, tokenizer = write("!"), AutoTokenizer.from_pretrained(tmp_path)
    expected = [fewer[token] for token in ("<s>", "a", "<unk>", "a", "</s>")]
    assert (tokenizer("a!a")["input_ids"], tokenizer.model_max_length) == (expected, 40)
    assert tokenizer.mask_token_id == fewer["<mask>"]


def test_openais_ids_are_bytes_then_merges_then_the_end_of_text():
    end = gpt2_bpe.END_OF_TEXT
    encoder = gpt2_bpe.encoder_of(MERGES, {end: 7})
    assert (encoder["!"], encoder["Ġt"], encoder["Ġthe"], encoder[end]) == (0, 256, 258, 256 + len(MERGES))
    assert end not in gpt2_bpe.encoder_of(MERGES, {})

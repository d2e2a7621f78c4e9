"""mBART through the converter, and pre-norm Poolingformers, which have mBART's layout."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MBartForConditionalGeneration
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50

from fairseq_poolingformer.huggingface import PoolingformerMBartForConditionalGeneration
from fairseq_poolingformer.models import demo_model
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import ConversionError, files
from fairseq_poolingformer.weights.convert import to_huggingface
from fairseq_poolingformer.weights.sentencepiece_model import LANGUAGES
from tests.huggingface.tiny_models import enlarge
from tests.models import tiny_huggingface
from tests.weights.conftest import run
from tests.weights.seq2seq import assert_agree, fairseq_outputs, huggingface_outputs, load_fairseq
from tests.weights.test_xlm_roberta import train

ROOT = Path(__file__).parents[2]
TEXTS = ["The thing", "naïve ½ ﬁne — 東京 🙂\tand\n\nlines ", "  two  spaces", "", "x" * 300]


def test_flags_and_old_settings_say_pre_norm(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "mbart")
    config = json.loads((source / "config.json").read_text())
    published = {"normalize_before": True, "add_final_layer_norm": True}  # as facebook/mbart-large-cc25 has them
    (source / "config.json").write_text(json.dumps({**config, **published}))
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    flags = (tmp_path / "fairseq" / "flags.txt").read_text()
    assert "--encoder-normalize-before --decoder-normalize-before" in flags


def write_demo_model(folder: Path) -> Path:
    for name in ("dict.source.txt", "dict.target.txt", "tokenizer"):
        (shutil.copytree if name == "tokenizer" else shutil.copy)(demo_model.FOLDER / name, folder / name)
    demo_model.write_demo_checkpoint(folder / "model.pt")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint as the quickstart's: the demo model with a second level."""
    folder = write_demo_model(tmp_path_factory.mktemp("demo_model"))
    settings = {"window_size": "4,16,32,32", "pooled_window_size": "256", "pooled_layers": "2", "global_tokens": 1}
    model, _ = load_fairseq(folder / "model.pt", **settings)
    enlarge(model, ".pooled_")
    stored, *_ = files.read_training(folder / "model.pt")
    files.write_checkpoint(folder / "model.pt", {**stored, **settings}, model.state_dict())
    return folder / "model.pt"


@pytest.fixture(scope="module")
def converted(checkpoint):
    folder = checkpoint.parent / "hf"
    assert run("to-huggingface", checkpoint, folder) == 0
    return folder


def open_in_transformers(folder):
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    return model.eval()


def test_the_reader_computes_and_writes_the_same_in_transformers(tmp_path):
    folder = write_demo_model(tmp_path)
    assert run("to-huggingface", folder / "model.pt", folder / "hf") == 0
    ours, theirs = demo_model.load_demo_model(), open_in_transformers(folder / "hf")
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    text = "These are papers on the Tulmon mill.\nThis is out of the register. It lies in Kelwick. It opens in May."
    inputs = tokenizer(text, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == ours.encode(text).tolist()
    target = torch.tensor([[2, *ours.encode("The Tulmon mill.").tolist()]])
    expected = fairseq_outputs(ours.model, inputs["input_ids"], target)
    assert_agree(expected, theirs, inputs["input_ids"], target)
    written = theirs.generate(**inputs, num_beams=1, max_length=40, forced_bos_token_id=0)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == ours.summarize(text, max_length=38, beam=1)[0]


def test_the_quickstarts_model_computes_the_same_in_transformers_and_back(checkpoint, converted, tmp_path):
    ours, theirs = load_fairseq(checkpoint)[0], open_in_transformers(converted)
    assert type(theirs) is PoolingformerMBartForConditionalGeneration
    torch.manual_seed(3)
    source, target = torch.randint(4, 4000, (2, 300)), torch.randint(4, 4000, (2, 20))
    source[:, 0], target[:, 0], source[1, 200:] = 0, 2, 1
    expected = fairseq_outputs(ours, source, target)
    assert_agree(expected, theirs, source, target)
    theirs.model.encoder.layers[2].self_attn.pooling = None
    assert (huggingface_outputs(theirs, source, target)[1] - expected[1]).abs().max() > 1e-2

    assert run("to-fairseq", converted, tmp_path / "back") == 0
    path = tmp_path / "back" / "model.pt"
    (before, state, _), (after, again, _) = map(files.read_training, (checkpoint, path))
    torch.testing.assert_close(again, state, rtol=0, atol=0)
    names = ("window_size", "pooled_layers", "encoder_normalize_before", "decoder_normalize_before", "dropout")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert all(map(torch.equal, fairseq_outputs(load_fairseq(path)[0], source, target), expected))


def test_the_quickstarts_tokenizer_gives_the_same_ids(checkpoint, converted, tmp_path):
    """It writes characters without a piece as bytes, which XLM-R's class in transformers cannot."""
    ours, theirs = load_tokenizer(checkpoint.parent), AutoTokenizer.from_pretrained(converted)
    texts = [*TEXTS, *(ROOT / "docs" / "summarization.md").read_text(encoding="utf-8").splitlines()]
    texts = [text for text in texts if not any(symbol in text for symbol in SPECIAL_SYMBOLS)]  # text is text here
    assert len(texts) > 50
    for text in texts:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).tolist(), text
        assert theirs.decode(ours.encode(text)) == ours.decode(ours.encode(text)), text
    assert theirs("the")["input_ids"] == [0, *ours.encode("the").tolist(), 2]
    assert (theirs.pad_token_id, theirs.mask_token_id, len(theirs)) == (1, None, 4000)
    theirs.save_pretrained(tmp_path / "hf")  # without the sentencepiece model
    for path in converted.glob("*"):
        if path.name in ("config.json", "model.safetensors"):
            shutil.copy(path, tmp_path / "hf")
    assert not (tmp_path / "hf" / "sentencepiece.model").exists()
    assert run("to-fairseq", tmp_path / "hf", tmp_path / "back") == 0
    rebuilt = load_tokenizer(tmp_path / "back")
    assert all(rebuilt.encode(text).tolist() == ours.encode(text).tolist() for text in texts)


def test_half_pre_norm_is_refused(checkpoint):
    settings, state, _ = files.read_training(checkpoint)
    with pytest.raises(ConversionError, match="decoder_normalize_before is False; Hugging Face's mBART has only True"):
        to_huggingface({**settings, "decoder_normalize_before": False}, state)


@pytest.mark.parametrize("languages", [LANGUAGES, MBART50[:30]])
def test_the_languages_keep_their_rows(tmp_path, languages):
    """Of a tiny mBART as it is published: a sentencepiece model, rows for its pieces, the languages and <mask>."""
    assert [*LANGUAGES] == MBART
    source, model = tmp_path / "hf", train(tmp_path / "pieces")
    row_0 = len(sentencepiece.SentencePieceProcessor(model_file=str(model))) + 1
    tiny_huggingface.model("mbart", vocab_size=row_0 + len(languages) + 1).save_pretrained(source)
    shutil.copy(model, source / "sentencepiece.bpe.model")
    if languages != LANGUAGES:
        assert run("to-fairseq", source, tmp_path / "fairseq") == 1  # nothing says which languages these are
        named = [{"id": row_0 + number, "content": language} for number, language in enumerate(languages)]
        (source / "tokenizer.json").write_text(json.dumps({"added_tokens": named}))
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    dictionary = Dictionary.load(str(tmp_path / "fairseq" / "dict.source.txt"))
    assert [dictionary.index(f"[{language}]") for language in languages] == [*range(row_0, row_0 + len(languages))]
    tokens = torch.randint(4, row_0 + len(languages), (2, 20), generator=torch.Generator().manual_seed(0))
    model, _ = load_fairseq(tmp_path / "fairseq" / "model.pt")
    theirs = MBartForConditionalGeneration.from_pretrained(source).eval()
    assert_agree(fairseq_outputs(model, tokens, tokens), theirs, tokens, tokens)

    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    back = MBartForConditionalGeneration.from_pretrained(tmp_path / "back")
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in theirs.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert tokenizer.convert_tokens_to_ids([*languages, "<mask>"]) == [*range(row_0, row_0 + len(languages) + 1)]
    ours = load_tokenizer(tmp_path / "fairseq")
    for text in (*TEXTS[:2], "", "the attention"):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ours.encode(text).tolist()

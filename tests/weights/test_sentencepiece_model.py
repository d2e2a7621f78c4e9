"""XLM-R and mBART through the converter, with Hugging Face's ids, and pre-norm Poolingformers of mBART's layout."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MBartForConditionalGeneration, XLMRobertaTokenizer
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50

from fairseq_poolingformer.huggingface import PoolingformerMBartForConditionalGeneration
from fairseq_poolingformer.models import demo_model
from fairseq_poolingformer.text.dictionary import MARKS, SPECIAL_SYMBOLS
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer, load_tokenizer
from fairseq_poolingformer.weights import files, sentencepiece_model
from fairseq_poolingformer.weights.sentencepiece_model import LANGUAGES
from tests.huggingface.tiny_models import enlarge
from tests.models import tiny_huggingface
from tests.weights.conftest import assert_same_checkpoints, back_in_huggingface, run
from tests.weights.seq2seq import assert_agree, fairseq_outputs, huggingface_outputs, load_fairseq

ROOT = Path(__file__).parents[2]
TEXTS = ["The attention of a long  document", " naïve café — 東京 🙂 ", "line\n\nand\ttab, ﬁne ½ x²"]
TEXTS += ["ไทย العربية 日本語 attention", "", "  two  spaces", "x" * 300]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return train(tmp_path_factory.mktemp("sentencepiece") / "xlmr")


def train(prefix: Path, **changes) -> Path:
    lines = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.strip()]
    settings = {"vocab_size": 300, "unk_id": 0, "bos_id": 1, "eos_id": 2, "hard_vocab_limit": False, **changes}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines, *TEXTS[:4]]), model_prefix=str(prefix), minloglevel=2, num_threads=1, **settings
    )
    return prefix.with_suffix(".model")


@pytest.fixture
def source(tmp_path, model):
    rows = len(sentencepiece.SentencePieceProcessor(model_file=str(model))) + 2
    tiny_huggingface.model("xlm-roberta", vocab_size=rows).save_pretrained(tmp_path / "hf")
    shutil.copy(model, tmp_path / "hf" / "sentencepiece.bpe.model")
    return tmp_path / "hf"


def test_ids_are_those_of_hugging_face(tmp_path, source, capsys):
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert "--arch poolingformer_xlmr_base" in capsys.readouterr().out
    theirs = XLMRobertaTokenizer.from_pretrained(source)
    ours = load_tokenizer(tmp_path / "fairseq")
    dictionary = Dictionary.load(str(tmp_path / "fairseq" / "dict.txt"))
    for text in TEXTS:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).tolist() == expected
        pieces = " ".join(dictionary[index] for index in expected)
        assert dictionary.encode_line(pieces, append_eos=False, add_if_not_exist=False).tolist() == expected
    assert theirs(TEXTS[0])["input_ids"] == [0, *ours.encode(TEXTS[0]).tolist(), 2]
    assert theirs("🦔")["input_ids"][-2] == ours.encode("🦔")[-1] == 3
    assert dictionary.add_symbol("<mask>") == theirs.mask_token_id == len(theirs) - 1


def test_outputs_and_round_trip(tmp_path, source, model):
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    path = tmp_path / "fairseq" / "model.pt"
    loaded, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(path.parent)})
    theirs = tiny_huggingface.MODELS["xlm-roberta"].from_pretrained(source).eval()
    tokens = torch.randint(4, len(task.source_dictionary), (2, 20), generator=torch.Generator().manual_seed(0))
    tokens[1, 15:] = 1
    real, back = tokens.ne(1), back_in_huggingface(path, "xlm-roberta")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("xlm-roberta", ["XLMRobertaForMaskedLM"])
    with torch.no_grad():
        expected, again = (model.double()(tokens, real.long()).logits[real] for model in (theirs, back))
        actual, _ = loaded[0].eval().double()(tokens)
    torch.testing.assert_close(actual[real], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(again, expected, atol=1e-5, rtol=0)
    assert (tmp_path / "back" / "sentencepiece.model").read_bytes() == model.read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "back")
    original = XLMRobertaTokenizer.from_pretrained(source)
    for text in TEXTS:
        ids = original(text)["input_ids"]
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer(text, "a <mask>")["input_ids"] == original(text, "a <mask>")["input_ids"]
        assert tokenizer.decode(ids) == original.decode(ids)
    assert run("to-fairseq", tmp_path / "back", tmp_path / "again") == 0
    names = ("dict.txt", "tokenizer/config.json", "tokenizer/sentencepiece.model")
    assert_same_checkpoints(path, tmp_path / "again" / "model.pt", names=names)


def test_folders_as_fairseq_publishes_them(tmp_path, source):
    """``xlmr.*`` has its sentencepiece model beside the checkpoint; a Longformer may be made of it too."""
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    published = tmp_path / "xlmr.tiny"
    published.mkdir()
    settings, state, _ = files.read_training(tmp_path / "fairseq" / "model.pt")
    long = {"arch": "poolingformer_xlmr_base", "window_size": "4", "pooled_layers": "none"}
    for name, more in (("xlm-roberta", {}), ("longformer", long)):
        files.write_checkpoint(published / "model.pt", {**settings, "data": "", **more}, state)
        shutil.copy(source / "sentencepiece.bpe.model", published)
        assert run("to-huggingface", published / "model.pt", tmp_path / name) == 1
        assert run("to-huggingface", published / "model.pt", tmp_path / name, "--tokenizer", published) == 0
        assert json.loads((tmp_path / name / "config.json").read_text())["model_type"] == name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "longformer")
    assert tokenizer(TEXTS[0])["input_ids"] == XLMRobertaTokenizer.from_pretrained(source)(TEXTS[0])["input_ids"]


def with_tokenizer_json(source, **changes):
    """The folder with ``tokenizer.json`` in place of the sentencepiece model, and the tokenizer."""
    tokenizer = XLMRobertaTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(source)
    (source / "sentencepiece.bpe.model").unlink()
    contents = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    (source / "tokenizer.json").write_text(json.dumps({**contents, **changes}), encoding="utf-8")
    return tokenizer


def test_tokenizer_json_alone_is_enough(tmp_path, source, model):
    """As many folders have it, without the sentencepiece model; the pieces, scores and normalizations are the same."""
    theirs = with_tokenizer_json(source)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    rebuilt, original = load_tokenizer(tmp_path / "fairseq"), SentencePieceTokenizer(model)
    more = ["ａｂｃ ①② ﷺ", "  two  spaces ", "e\u0301 ½ﬁ", "<s> </s> <mask>", "a\u200bb\u00a0c"]
    for text in [*TEXTS, *more]:
        ids = original.encode(text)
        assert rebuilt.encode(text).tolist() == ids.tolist()
        assert rebuilt.decode(ids) == original.decode(ids)
        assert text in more or theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist()
    paths = (model, tmp_path / "fairseq" / "tokenizer" / "sentencepiece.model")
    pieces, written = (sentencepiece.SentencePieceProcessor(model_file=str(path)) for path in paths)
    assert len(pieces) == len(written)
    for kind in ("id_to_piece", "get_score", "is_control", "is_unknown", "is_byte"):
        assert all(getattr(pieces, kind)(n) == getattr(written, kind)(n) for n in range(len(pieces)))
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    again = XLMRobertaTokenizer.from_pretrained(tmp_path / "back")
    assert [again(text)["input_ids"] for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "Unigram", "vocab": [["<unk>", 0.0]]}}, "its first pieces are"),
        ({"normalizer": {"type": "Lowercase"}}, "its normalizer is not sentencepiece's table alone"),
        ({"normalizer": None}, "its normalizer is not sentencepiece's table alone"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "is no base64"),
    ],
)
def test_tokenizer_json_that_is_not_xlmrs(tmp_path, source, capsys, change, message):
    with_tokenizer_json(source, **change)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "fairseq").exists()


def test_models_of_another_layout_or_size(tmp_path, model):
    other = train(tmp_path / "padded", pad_id=3)
    (tmp_path / "bad.model").write_bytes(b"no model")
    for write, arguments, message in (
        (sentencepiece_model.write_fairseq, (other, 302, ("dict.txt",)), "needs <unk>, <s> and </s> first"),
        (sentencepiece_model.write_huggingface, (model, 500, 512), "the embedding has 500 rows"),
        (sentencepiece_model.write_fairseq, (tmp_path / "bad.model", 300, ("dict.txt",)), r"bad\.model: not a sentenc"),
    ):
        with pytest.raises(ValueError, match=message):
            write(tmp_path, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.model", "padded.model", "padded.vocab"]


def test_the_tasks_special_tokens_come_behind_mask(tmp_path, model):
    words = len(SentencePieceTokenizer(model))
    rows = words + 1 + len(MARKS)
    sentencepiece_model.write_huggingface(tmp_path, model, rows, 512)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.convert_tokens_to_ids(["<mask>", *MARKS]) == list(range(words, rows))
    assert (tokenizer(f"the{MARKS[0]}a")["input_ids"].count(words + 1), len(tokenizer)) == (1, rows)


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


@pytest.mark.parametrize("languages", [LANGUAGES, MBART50[:30]])
def test_the_languages_keep_their_rows(tmp_path, languages):
    """A tiny mBART as it is published: a sentencepiece model, rows for its pieces, the languages and <mask>."""
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

"""XLM-R through the converter: the weights as RoBERTa's, a sentencepiece model with Hugging Face's ids."""

import json
import shutil
import time
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from transformers import AutoTokenizer, XLMRobertaTokenizer

from fairseq_poolingformer.models import PoolingformerRoberta
from fairseq_poolingformer.text.dictionary import MARKS, SPECIAL_SYMBOLS
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer, load_tokenizer
from fairseq_poolingformer.weights import files, sentencepiece_model
from tests.models import tiny_huggingface
from tests.weights.conftest import assert_same_checkpoints, back_in_huggingface, run

ROOT = Path(__file__).parents[2]
TEXTS = ["The attention of a long  document", " naïve café — 東京 🙂 ", "line\n\nand\ttab, ﬁne ½ x²"]
TEXTS += ["ไทย العربية 日本語 attention", ""]


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
    more = ["ａｂｃ ①② ﷺ", "  two  spaces ", "e\u0301 ½ﬁ", "x" * 300, "<s> </s> <mask>", "a\u200bb\u00a0c"]
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


def test_as_many_pieces_as_xlm_r_has_are_quick():
    """A second or two of CPU time; it was minutes when each piece copied those before it."""
    vocab = [*([token, 0.0] for token in SPECIAL_SYMBOLS), *([f"piece{n}", -1.0] for n in range(250_000))]
    tokenizer = {"model": {"vocab": vocab}, "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}
    begin = time.process_time()
    proto = sentencepiece_model.sentencepiece_model(Path("tokenizer.json"), tokenizer)
    assert time.process_time() - begin < 15
    assert proto.count(b"piece") == 250_000


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


def test_pairs_are_encoded_as_hugging_face_does(tmp_path, source):
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_xlmr_base") == 0
    ours = PoolingformerRoberta.from_pretrained(str(tmp_path / "fairseq"), window_size="64", pooled_layers="none")
    expected = XLMRobertaTokenizer.from_pretrained(source)("The document", "of a")["input_ids"]
    assert ours.encode("The document", "of a").tolist() == expected

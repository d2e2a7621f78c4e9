"""DeBERTa through the converter, against Hugging Face's own model."""

import json

import pytest
import torch
from fairseq import options
from safetensors.torch import load_file
from transformers import DebertaForSequenceClassification, DebertaModel, DebertaTokenizer

from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import ConversionError, files
from fairseq_poolingformer.weights.convert import to_fairseq
from tests.models import tiny_huggingface
from tests.weights.conftest import run
from tests.weights.test_gpt2_bpe import TEXTS
from tests.weights.test_roberta import batch, load


def theirs_of(tokens):
    """Hugging Face's ids of fairseq's: <s> and <pad> are 1 and 0 there."""
    return torch.where(tokens < 2, 1 - tokens, tokens)


@torch.no_grad()
def assert_agree(ours, theirs, tokens, head=True):
    """Features, and logits of the head, of real tokens to 1e-5, of outputs that are not all alike."""
    theirs, real = theirs.double(), tokens.ne(1)
    inputs = {"input_ids": theirs_of(tokens), "attention_mask": real.long()}
    features = theirs.base_model(**inputs).last_hidden_state
    assert features.std() > 0.3
    torch.testing.assert_close(ours(tokens, features_only=True)[0][real], features[real], rtol=0, atol=1e-5)
    if head:
        logits = theirs(**inputs).logits
        order = theirs_of(torch.arange(logits.size(2)))
        torch.testing.assert_close(ours(tokens)[0][real], logits[real][:, order], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pos_att_type": "c2p"},
        {"pos_att_type": ["p2c"]},
        {"max_relative_positions": 6},  # far less than the tokens: distances beyond share the outermost rows
        {"position_biased_input": True},
        {"position_biased_input": True, "type_vocab_size": 2, "layer_norm_eps": 1e-3},
        {"type_vocab_size": 2},  # and no absolute positions to add type 0 to
        {"legacy": False},
    ],
)
def test_outputs_are_those_of_hugging_face(tmp_path, changes):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta", **changes)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    model = load(tmp_path / "fairseq" / "model.pt")
    theirs = tiny_huggingface.model("deberta", **changes)
    assert_agree(model, theirs, batch())
    assert_agree(model, theirs, batch((46, 1, 31)))


def test_a_window_as_wide_as_the_text_is_no_window(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta")
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_deberta_large") == 0
    model = load(tmp_path / "fairseq" / "model.pt", window_size="21,all,40")
    assert_agree(model, tiny_huggingface.model("deberta"), batch())


@torch.no_grad()
def test_every_part_of_the_positions_matters(tmp_path):
    """Else equal outputs would say nothing about them."""
    model, tokens = load(converted(tmp_path)), batch()
    encoder = model.encoder.sentence_encoder
    before, _ = model(tokens, features_only=True)
    relative = encoder.layers[0].relative_projections
    for weight in (
        encoder.relative_positions.weight,
        relative.k_proj.weight,
        relative.q_proj.weight,
        relative.q_proj.bias,
    ):
        kept = weight.clone()
        weight.copy_(weight.flip(0))
        assert (model(tokens, features_only=True)[0] - before).abs().max() > 1e-2
        weight.copy_(kept)


def test_weights_as_published(tmp_path, capsys):
    """The head of DeBERTa's own pretraining under its own names, beside absolute positions that only it adds."""
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta")
    other = tiny_huggingface.model("deberta", legacy=False)
    (source / "model.safetensors").unlink()
    state = {**other.state_dict(), "deberta.embeddings.position_embeddings.weight": torch.ones(46, 24)}
    assert "lm_predictions.lm_head.bias" in state
    torch.save({**state, "config": {"hidden_size": 24}}, source / "pytorch_model.bin")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert "left out the absolute positions" in capsys.readouterr().out
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), other, batch())


@pytest.mark.parametrize("cls", [DebertaModel, DebertaForSequenceClassification])
def test_models_with_another_head_or_none(tmp_path, capsys, cls):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta", cls)
    if cls is not DebertaModel:
        assert run("to-fairseq", source, tmp_path / "fairseq") == 1
        assert "--drop-heads" in capsys.readouterr().err
    assert run("to-fairseq", source, tmp_path / "fairseq", "--drop-heads") == 0
    assert "a random one is filled in" in capsys.readouterr().out
    model = load(tmp_path / "fairseq" / "model.pt")
    assert_agree(model, tiny_huggingface.model("deberta", cls), batch(), head=False)


@pytest.mark.parametrize("changes", [{}, {"position_biased_input": True, "max_relative_positions": 9}])
def test_round_trip_is_bit_identical(tmp_path, changes):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta", **changes)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    before, after = load_file(source / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    before = {name: tensor for name, tensor in before.items() if not name.startswith("cls.predictions.decoder")}
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    theirs, info = tiny_huggingface.MODELS["deberta"].from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values())
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), theirs.eval(), batch())
    for name in ("vocab.json", "merges.txt"):
        assert json_or_text(source / name) == json_or_text(tmp_path / "back" / name)


def json_or_text(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else text


def test_text_has_the_ids_of_hugging_face(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    ours = load_tokenizer(tmp_path / "fairseq")
    for folder in (source, tmp_path / "back"):
        tokenizer = DebertaTokenizer.from_pretrained(folder)
        assert tokenizer("")["input_ids"] == [1, 2]
        assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, len(tiny_huggingface.vocabulary()) - 1)
        for text in TEXTS:
            assert ours.encode(text).tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    "changes", [{}, {"type_vocab_size": 1}, {"position_biased_input": True, "layer_norm_eps": 1e-5}]
)
def test_flags_build_the_model_of_the_checkpoint(tmp_path, changes):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta", **changes)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    settings, *_ = files.read_training(tmp_path / "fairseq" / "model.pt")
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    parsed = vars(options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags]))
    del settings["task"], settings["data"]
    assert {key: parsed[key] for key in settings} == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"talking_head": True}, "talking_head is True"),
        ({"relative_attention": False}, "relative_attention is False"),
        ({"pos_att_type": ["p2p"]}, "pos_att_type is"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"pad_token_id": 1}, "pad_token_id is 1"),
        ({"embedding_size": 12}, "embedding_size differs"),
        ({"num_attention_heads": 5}, "5 heads"),
        ({"position_biased_input": True}, "missing: embeddings.position_embeddings.weight"),
    ],
)
def test_what_fairseq_cannot_express_is_refused(change, message):
    model = tiny_huggingface.model("deberta")
    with pytest.raises(ConversionError, match=message):
        to_fairseq({**model.config.to_dict(), **change}, dict(model.state_dict()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window_size": "9"}, "window_size is 9"),
        ({"global_tokens": 1, "global_relative_positions": 4}, "coarse relative positions"),
        ({"pooled_layers": "1"}, "--drop-pooled"),
        ({"relative_attention": "none"}, "choose another --model-type"),
    ],
)
def test_what_hugging_face_cannot_express_is_refused(tmp_path, capsys, settings, message):
    path = converted(tmp_path)
    stored, state, _ = files.read_training(path)
    files.write_checkpoint(path, {**stored, **settings}, state)
    assert run("to-huggingface", path, tmp_path / "back", "--model-type", "deberta") == 1
    assert message in capsys.readouterr().err


def test_token_types_become_positions_that_are_all_alike(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta", type_vocab_size=2)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    printed = capsys.readouterr().out
    assert "it gets a table of positions (--absolute-positions) whose rows are all the embedding of type 0" in printed
    assert "left out the embeddings of token types 1 to 1" in printed
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    back = tiny_huggingface.MODELS["deberta"].from_pretrained(tmp_path / "back").eval()
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), back, batch())


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "longformer"])
def test_models_without_relative_attention_are_named(tmp_path, capsys, model_type):
    assert run("to-huggingface", converted(tmp_path), tmp_path / "back", "--model-type", model_type) == 1
    error = capsys.readouterr().err
    assert "the model has relative attention (c2p,p2c)" in error
    assert "--model-type deberta" in error


def test_a_bias_of_the_keys_is_not_lost(tmp_path, capsys):
    path = converted(tmp_path)
    settings, state, _ = files.read_training(path)
    state["encoder.sentence_encoder.layers.2.self_attn.k_proj.bias"] += 1
    files.write_checkpoint(path, settings, state)
    assert run("to-huggingface", path, tmp_path / "back") == 1
    assert "layer 2: the bias of the keys is not zero" in capsys.readouterr().err


def converted(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "deberta")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    return tmp_path / "fairseq" / "model.pt"

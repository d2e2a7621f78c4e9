"""DeBERTa through the converter, against Hugging Face's own model."""

import pytest
import torch
from transformers import DebertaTokenizer

from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import files
from tests.models import tiny_huggingface
from tests.weights.conftest import run
from tests.weights.encoders import assert_agree, batch, load
from tests.weights.test_gpt2_bpe import TEXTS


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

"""DeBERTa through the converter, against Hugging Face's own model."""

import torch
from transformers import DebertaTokenizer

from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import files
from tests.models import tiny_huggingface
from tests.weights.conftest import back_in_huggingface, converted, run
from tests.weights.encoders import assert_agree, batch, load
from tests.weights.test_gpt2_bpe import TEXTS


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
    source, path = converted(tmp_path, "deberta")
    assert run("to-huggingface", path, tmp_path / "back") == 0
    ours = load_tokenizer(path.parent)
    for folder in (source, tmp_path / "back"):
        tokenizer = DebertaTokenizer.from_pretrained(folder)
        assert tokenizer("")["input_ids"] == [1, 2]
        assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, len(tiny_huggingface.vocabulary()) - 1)
        for text in TEXTS:
            assert ours.encode(text).tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_token_types_become_positions_that_are_all_alike(tmp_path, capsys):
    _, path = converted(tmp_path, "deberta", type_vocab_size=2)
    printed = capsys.readouterr().out
    assert "it gets a table of positions (--absolute-positions) whose rows are all the embedding of type 0" in printed
    assert "left out the embeddings of token types 1 to 1" in printed
    assert_agree(load(path), back_in_huggingface(path, "deberta"), batch())


def test_a_bias_of_the_keys_is_not_lost(tmp_path, capsys):
    _, path = converted(tmp_path, "deberta")
    settings, state, _ = files.read_training(path)
    state["encoder.sentence_encoder.layers.2.self_attn.k_proj.bias"] += 1
    files.write_checkpoint(path, settings, state)
    assert run("to-huggingface", path, tmp_path / "back") == 1
    assert "layer 2: the bias of the keys is not zero" in capsys.readouterr().err

"""The converter against Hugging Face's own models: same outputs, nothing lost, nothing dropped silently."""

import argparse

import pytest
import torch
from fairseq import checkpoint_utils, options
from safetensors.torch import load_file
from transformers import BartForConditionalGeneration

from fairseq_poolingformer.weights import files
from tests.models import tiny_huggingface
from tests.weights.conftest import run

ROWS = len(tiny_huggingface.vocabulary())


def load_fairseq(path, **overrides):
    """The model as generation loads it: from the settings in the checkpoint alone."""
    overrides["data"] = str(path.parent)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=overrides)
    return models[0].eval(), task


def load_for_translation(path, **overrides):
    """The same in a task without <mask>, for which BART drops the last row of the embedding."""
    languages = {"source_lang": "source", "target_lang": "target"}
    return load_fairseq(path, task="translation", **languages, **overrides)[0]


@torch.no_grad()
def huggingface_outputs(model, source, target, global_tokens=0):
    """Encoder output (B, S, C) and logits (B, T, V)."""
    inputs = {"input_ids": source, "attention_mask": source.ne(1).long(), "decoder_input_ids": target}
    if global_tokens:
        inputs["global_attention_mask"] = (torch.arange(source.size(1)) < global_tokens).long().expand_as(source)
    output = model(**inputs)
    return output.encoder_last_hidden_state, output.logits


@torch.no_grad()
def fairseq_outputs(model, source, target):
    """Encoder output (B, S, C) and logits (B, T, V)."""
    lengths = source.ne(1).sum(1)
    encoded = model.encoder(source, lengths)["encoder_out"][0].transpose(0, 1)
    return encoded, model(source, lengths, target)[0]


def assert_agree(ours, theirs, source):
    """Encoder outputs at real tokens and the logits of our rows, nearly to 1e-5, of outputs that are not all alike."""
    real = source.ne(1)
    assert theirs[1].std() > 0.3
    torch.testing.assert_close(ours[0][real], theirs[0][real], rtol=0, atol=1e-5)
    assert ours[1].size(-1) >= ROWS - 1
    torch.testing.assert_close(ours[1], theirs[1][..., : ours[1].size(-1)], rtol=1e-6, atol=1e-5)


def test_bart_has_the_outputs_of_hugging_face(tmp_path):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    model, task = load_fairseq(tmp_path / "fairseq" / "model.pt")
    assert len(task.source_dictionary) == ROWS - 1  # without <mask>, for which summarization has no use
    source, target = tiny_huggingface.batch()
    theirs = huggingface_outputs(tiny_huggingface.model("bart"), source, target)
    assert_agree(fairseq_outputs(model, source, target), theirs, source)


def test_bart_is_poolingformer_with_a_window_as_wide_as_the_sequence(tmp_path):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source_folder, tmp_path / "fairseq", "--arch", "poolingformer_bart_base") == 0
    full = {"window_size": "21,30,64", "pooled_layers": "none"}  # of 22 tokens, the last is 21 from the first
    model, _ = load_fairseq(tmp_path / "fairseq" / "model.pt", **full)
    source, target = tiny_huggingface.batch()
    theirs = huggingface_outputs(tiny_huggingface.model("bart"), source, target)
    assert_agree(fairseq_outputs(model, source, target), theirs, source)


@pytest.mark.parametrize("arch", ["bart_base", "poolingformer_bart_base"])
def test_scaled_embeddings(tmp_path, arch):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart", scale_embedding=True)
    assert run("to-fairseq", source_folder, tmp_path / "fairseq", "--arch", arch) == 0
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    assert "--scale-embedding" in flags
    full = {"window_size": "64", "pooled_layers": "none"} if arch.startswith("pooling") else {}
    model, _ = load_fairseq(tmp_path / "fairseq" / "model.pt", **full)
    source, target = tiny_huggingface.batch()
    theirs = tiny_huggingface.model("bart", scale_embedding=True)
    assert_agree(fairseq_outputs(model, source, target), huggingface_outputs(theirs, source, target), source)
    if arch == "bart_base":
        assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
        back = tiny_huggingface.MODELS["bart"].from_pretrained(tmp_path / "back").eval()
        assert back.config.scale_embedding
    else:
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags])
        assert parsed.no_scale_embedding is False


@pytest.mark.parametrize("attention_window", [4, [4, 8, 4]])
def test_led_has_the_outputs_of_hugging_face(tmp_path, attention_window):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "led", attention_window=attention_window)
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    model, _ = load_fairseq(tmp_path / "fairseq" / "model.pt")
    assert model.encoder.global_tokens == 1
    source, target = tiny_huggingface.batch()
    theirs = tiny_huggingface.model("led", attention_window=attention_window)
    for count in (1, 3, 0):
        model.encoder.global_tokens = count
        expected = huggingface_outputs(theirs, source, target, count)
        assert_agree(fairseq_outputs(model, source, target), expected, source)


def convert_poolingformer(tmp_path, **settings):
    """A random Poolingformer made from a tiny BART, with its tokenizer folder; returns the checkpoint and the model."""
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_bart_base") == 0
    path = tmp_path / "fairseq" / "model.pt"
    model, _ = load_fairseq(path, **settings)
    stored, *_ = files.read_training(path)
    files.write_checkpoint(path, {**stored, **settings}, model.state_dict())
    return path, model


def test_poolingformer_without_level_two_is_an_led_with_copied_projections(tmp_path, capsys):
    settings = {"window_size": "3", "pooled_layers": "none", "global_tokens": 2}
    path, model = convert_poolingformer(tmp_path, **settings)
    assert run("to-huggingface", path, tmp_path / "back") == 0
    printed = capsys.readouterr().out
    assert "filled in as copies" in printed
    assert "global_tokens is 2" in printed
    back = tiny_huggingface.MODELS["led"].from_pretrained(tmp_path / "back").eval()
    assert back.config.attention_window == [6, 6, 6]
    attention = back.led.encoder.layers[0].self_attn.longformer_self_attn
    assert torch.equal(attention.query.weight, attention.query_global.weight)
    assert attention.query.weight.data_ptr() != attention.query_global.weight.data_ptr()
    source, target = tiny_huggingface.batch()
    expected = huggingface_outputs(back, source, target, global_tokens=2)
    assert_agree(fairseq_outputs(model, source, target), expected, source)


def test_level_two_is_left_out_only_on_demand(tmp_path, capsys):
    path, _ = convert_poolingformer(tmp_path, window_size="3", pooled_window_size="8", pooled_layers="1-2")
    assert run("to-huggingface", path, tmp_path / "back", "--model-type", "led") == 1
    assert "pooled_layers 1-2" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
    assert run("to-huggingface", path, tmp_path / "back", "--drop-pooled") == 0
    assert "encoder.layers.1.self_attn.pooled_k_pool_weight" in capsys.readouterr().out
    settings, state, _ = files.read_training(path)
    kept = {name: tensor for name, tensor in state.items() if ".pooled_" not in name}
    files.write_checkpoint(path, {**settings, "pooled_layers": "none"}, kept)
    back = tiny_huggingface.MODELS["led"].from_pretrained(tmp_path / "back").eval()
    source, target = tiny_huggingface.batch()
    expected = huggingface_outputs(back, source, target, global_tokens=1)
    assert_agree(fairseq_outputs(load_fairseq(path)[0], source, target), expected, source)


def test_windows_that_hugging_face_cannot_have(tmp_path, capsys):
    path, model = convert_poolingformer(tmp_path, window_size="22", pooled_layers="none")
    assert run("to-huggingface", path, tmp_path / "back") == 1
    assert "--model-type bart" in capsys.readouterr().err
    assert run("to-huggingface", path, tmp_path / "back", "--model-type", "bart") == 0
    assert "window_size is not kept" in capsys.readouterr().out
    back = tiny_huggingface.MODELS["bart"].from_pretrained(tmp_path / "back").eval()
    source, target = tiny_huggingface.batch()
    assert_agree(fairseq_outputs(model, source, target), huggingface_outputs(back, source, target), source)


@pytest.mark.parametrize("model_type", ["bart", "led"])
def test_round_trip_is_bit_identical(tmp_path, model_type):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    before = tiny_huggingface.MODELS[model_type].from_pretrained(source)
    after, info = tiny_huggingface.MODELS[model_type].from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values())
    same = before.state_dict()
    assert same.keys() == after.state_dict().keys()
    assert all(torch.equal(same[name], tensor) for name, tensor in after.state_dict().items())
    different = {k for k, v in after.config.to_dict().items() if before.config.to_dict().get(k) != v}
    assert different <= {"_name_or_path", "forced_eos_token_id"}

    assert run("to-fairseq", tmp_path / "back", tmp_path / "again") == 0
    first, second = (files.read_training(tmp_path / name / "model.pt") for name in ("fairseq", "again"))
    assert {**first[0], "data": None} == {**second[0], "data": None}
    assert first[1].keys() == second[1].keys()
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
    for name in ("dict.txt", "flags.txt", "tokenizer/encoder.json", "tokenizer/vocab.bpe"):
        assert (tmp_path / "fairseq" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_rate_that_fairseq_writes_as_a_whole_number_opens_in_transformers(tmp_path):
    """fairseq-train saves ``encoder_layerdrop`` as the integer 0, which transformers' configurations refuse."""
    folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", folder, tmp_path / "fairseq") == 0
    settings, state, _ = files.read_training(tmp_path / "fairseq" / "model.pt")
    files.write_checkpoint(tmp_path / "fairseq" / "model.pt", {**settings, "encoder_layerdrop": 0, "dropout": 0}, state)
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    BartForConditionalGeneration.from_pretrained(tmp_path / "back")


def test_positions_lie_two_rows_down_in_led(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "led")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    _, state, _ = files.read_training(tmp_path / "fairseq" / "model.pt")
    theirs = load_file(source / "model.safetensors")["led.encoder.embed_positions.weight"]
    assert state["encoder.embed_positions.weight"].shape == (50, 24)
    assert torch.equal(state["encoder.embed_positions.weight"][2:], theirs)
    assert not state["encoder.embed_positions.weight"][:2].any()


@pytest.mark.parametrize(
    ("model_type", "arch"),
    [("bart", "bart_base"), ("led", "led_bart_large"), ("led", "poolingformer_bart_tiny")],
)
def test_flags_build_the_model_of_the_checkpoint(tmp_path, model_type, arch):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type, activation_function="gelu_new", dropout=0.2)
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", arch) == 0
    settings, *_ = files.read_training(tmp_path / "fairseq" / "model.pt")
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    parsed = vars(options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags]))
    del settings["task"], settings["data"]
    assert {key: parsed.get(key, 0) for key in settings} == settings  # fairseq fills in some zeros only later


def test_a_fine_tuned_checkpoint(tmp_path, capsys):
    """Training writes "cfg" in place of "args", and fairseq's BART drops the row of <mask> for tasks without it."""
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    model = load_for_translation(tmp_path / "fairseq" / "model.pt")
    assert len(model.encoder.dictionary) == ROWS - 1
    settings, *_ = files.read_training(tmp_path / "fairseq" / "model.pt")
    del settings["data"]
    trained = {"args": None, "cfg": {"model": argparse.Namespace(**settings)}, "model": model.state_dict()}
    (tmp_path / "runs").mkdir()
    torch.save(trained, tmp_path / "runs" / "checkpoint_best.pt")

    assert run("to-huggingface", tmp_path / "runs" / "checkpoint_best.pt", tmp_path / "back") == 1
    assert "--tokenizer" in capsys.readouterr().err
    tokenizer = ("--tokenizer", tmp_path / "fairseq" / "tokenizer")
    assert run("to-huggingface", tmp_path / "runs" / "checkpoint_best.pt", tmp_path / "back", *tokenizer) == 0
    back = tiny_huggingface.MODELS["bart"].from_pretrained(tmp_path / "back").eval()
    source, target = tiny_huggingface.batch()
    assert_agree(fairseq_outputs(model, source, target), huggingface_outputs(back, source, target), source)

"""The converter against Hugging Face's own models: same outputs, nothing lost, nothing dropped in silence."""

import argparse
import json
import shutil

import pytest
import torch
from fairseq import checkpoint_utils, options
from safetensors.torch import load_file, save_file
from transformers import BartForSequenceClassification

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.models import conversion
from fairseq_poolingformer.models.conversion import ConversionError, files
from tests.models import tiny_huggingface


def run(*arguments) -> int:
    return convert.main([str(argument) for argument in arguments])


def load_fairseq(folder, **overrides):
    """The model as generation loads it: from the settings in the checkpoint alone."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "model.pt")], arg_overrides={"data": str(folder), **overrides}
    )
    return models[0].eval(), task


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
    """Encoder outputs at real tokens and all logits, to 1e-5, of outputs that are not all alike."""
    real = source.ne(1)
    assert theirs[1].std() > 0.3
    torch.testing.assert_close(ours[0][real], theirs[0][real], rtol=0, atol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=1e-5)


def test_bart_has_the_outputs_of_hugging_face(tmp_path):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    model, task = load_fairseq(tmp_path / "fairseq")
    assert len(task.source_dictionary) == len(tiny_huggingface.vocabulary())
    source, target = tiny_huggingface.batch()
    theirs = huggingface_outputs(tiny_huggingface.model("bart"), source, target)
    assert_agree(fairseq_outputs(model, source, target), theirs, source)


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
    first, second = (files.read_checkpoint(tmp_path / name / "model.pt") for name in ("fairseq", "again"))
    assert first[0] == second[0]
    assert first[1].keys() == second[1].keys()
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
    for name in ("dict.txt", "flags.txt", "tokenizer/encoder.json", "tokenizer/vocab.bpe"):
        assert (tmp_path / "fairseq" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_positions_lie_two_rows_down_in_led(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "led")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    _, state = files.read_checkpoint(tmp_path / "fairseq" / "model.pt")
    theirs = load_file(source / "model.safetensors")["led.encoder.embed_positions.weight"]
    assert state["encoder.embed_positions.weight"].shape == (50, 24)
    assert torch.equal(state["encoder.embed_positions.weight"][2:], theirs)
    assert not state["encoder.embed_positions.weight"][:2].any()


def test_flags_build_the_model_of_the_checkpoint(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "bart", activation_function="gelu_new", dropout=0.2)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    settings, _ = files.read_checkpoint(tmp_path / "fairseq" / "model.pt")
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    parsed = vars(options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags]))
    del settings["task"]  # pretraining's, which is over
    assert {key: parsed.get(key, 0) for key in settings} == settings  # fairseq fills in some zeros only later


def test_a_fine_tuned_checkpoint(tmp_path, capsys):
    """Training writes "cfg" in place of "args", and fairseq's BART drops the row of <mask> for tasks without it."""
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    for language in ("source", "target"):
        shutil.copyfile(tmp_path / "fairseq" / "dict.txt", tmp_path / "fairseq" / f"dict.{language}.txt")
    model, _ = load_fairseq(tmp_path / "fairseq", task="translation", source_lang="source", target_lang="target")
    rows = len(tiny_huggingface.vocabulary()) - 1
    assert len(model.encoder.dictionary) == rows
    settings, _ = files.read_checkpoint(tmp_path / "fairseq" / "model.pt")
    trained = {"args": None, "cfg": {"model": argparse.Namespace(**settings)}, "model": model.state_dict()}
    (tmp_path / "runs").mkdir()
    torch.save(trained, tmp_path / "runs" / "checkpoint_best.pt")

    assert run("to-huggingface", tmp_path / "runs" / "checkpoint_best.pt", tmp_path / "back") == 1
    assert "--tokenizer" in capsys.readouterr().err
    tokenizer = ("--tokenizer", tmp_path / "fairseq" / "tokenizer")
    assert run("to-huggingface", tmp_path / "runs" / "checkpoint_best.pt", tmp_path / "back", *tokenizer) == 0
    back = tiny_huggingface.MODELS["bart"].from_pretrained(tmp_path / "back").eval()
    source, target = (ids.clamp(max=rows - 1) for ids in tiny_huggingface.batch())
    assert_agree(fairseq_outputs(model, source, target), huggingface_outputs(back, source, target), source)


@pytest.mark.parametrize("form", ["bin", "sharded", "base model", "half"])
def test_weights_in_other_forms(tmp_path, form):
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    whole = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    if form == "bin":
        # As older versions saved it: the tied embedding under all its names, and the logits' bias.
        tied = dict.fromkeys(
            ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
            whole["model.shared.weight"],
        )
        bias = {"final_logits_bias": torch.zeros(1, len(tiny_huggingface.vocabulary()))}
        torch.save({**whole, **tied, **bias}, source / "pytorch_model.bin")
    elif form == "sharded":
        shards = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(whole)}
        for shard in set(shards.values()):
            save_file({name: whole[name] for name in whole if shards[name] == shard}, source / shard)
        (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    elif form == "base model":
        save_file({name.removeprefix("model."): tensor for name, tensor in whole.items()}, source / "model.safetensors")
    else:
        whole = {name: tensor.half() for name, tensor in whole.items()}
        save_file(whole, source / "model.safetensors")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    back = load_file(tmp_path / "back" / "model.safetensors")
    whole.pop("final_logits_bias")  # always zero, and Hugging Face does not ask for it
    assert back.keys() == whole.keys()
    assert all(torch.equal(back[name], whole[name]) for name in whole)
    assert all(back[name].dtype == whole[name].dtype for name in whole)


def broken(state, config, change):
    """Make one thing of a Hugging Face model impossible to convert."""
    if change == "missing":
        del state["model.decoder.layers.1.fc2.bias"]
    elif change == "unexpected":
        state["model.encoder.layer_norm.weight"] = torch.ones(24)
    elif change == "untied":
        state["lm_head.weight"] = state["model.shared.weight"] + 1
    elif change == "bias":
        state["final_logits_bias"] = torch.ones(1, len(tiny_huggingface.vocabulary()))
    elif change == "twice":
        state["shared.weight"] = state["model.shared.weight"]
    elif change == "positions":
        config["max_position_embeddings"] = 42
    else:
        config.update(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", r"missing: decoder\.layers\.1\.fc2\.bias; unexpected: none"),
        ("unexpected", r"missing: none; unexpected: encoder\.layer_norm\.weight"),
        ("untied", r"shared\.weight and lm_head\.weight differ"),
        ("bias", "final_logits_bias is not zero"),
        ("twice", "with and without 'model.': shared.weight"),
        ("positions", r"embed_positions\.weight is \(42, 24\) .* asks for \(44, 24\)"),
        ({"model_type": "t5"}, "model_type is 't5'; can convert: bart, led"),
        ({"activation_function": "swiglu"}, "activation_function 'swiglu'"),
        ({"scale_embedding": True}, "scale_embedding is True"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm is True"),
        ({"normalize_before": True}, "normalize_before is True"),
        ({"pad_token_id": 5}, "pad_token_id is 5"),
    ],
)
def test_what_fairseq_cannot_express_is_refused(change, message):
    model = tiny_huggingface.model("bart")
    config, state = model.config.to_dict(), dict(model.state_dict())
    broken(state, config, change)
    with pytest.raises(ConversionError, match=message):
        conversion.to_fairseq(config, state)


@pytest.mark.parametrize("window", [5, [4, 8], [4, 8, 0]])
def test_windows_that_led_cannot_have(window):
    model = tiny_huggingface.model("led")
    with pytest.raises(ConversionError, match="attention_window"):
        conversion.to_fairseq({**model.config.to_dict(), "attention_window": window}, dict(model.state_dict()))


def test_heads_are_left_out_only_on_demand(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    BartForSequenceClassification(tiny_huggingface.config("bart")).save_pretrained(source)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 1
    error = capsys.readouterr().err
    assert "classification_head.dense.weight" in error
    assert "--drop-heads" in error
    assert not (tmp_path / "fairseq").exists()
    assert run("to-fairseq", source, tmp_path / "fairseq", "--drop-heads") == 0
    assert "left out heads: classification_head.dense.bias" in capsys.readouterr().out


def test_nothing_is_overwritten_and_no_half_folder_is_left(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert run("to-fairseq", source, tmp_path / "out") == 1
    assert "out is there already" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError), files.new_folder(tmp_path / "new") as folder:
        (folder / "half" / "file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "out"]
    (source / "model.safetensors").write_bytes(b"damaged")
    assert run("to-fairseq", source, tmp_path / "new") == 1
    assert "model.safetensors is not readable as weights" in capsys.readouterr().err


def test_a_checkpoint_is_data_only(tmp_path, capsys):
    torch.save({"model": {}, "args": argparse.ArgumentParser}, tmp_path / "model.pt")
    assert run("to-huggingface", tmp_path / "model.pt", tmp_path / "out") == 1
    assert "not readable as a fairseq checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "limit"), [("decoder_start_token_id", 0), ("forced_bos_token_id", 0)])
def test_conventions_of_generation_are_told(key, limit):
    model = tiny_huggingface.model("bart")
    converted = conversion.to_fairseq({**model.config.to_dict(), key: limit}, dict(model.state_dict()))
    assert any(key in note for note in converted.notes)

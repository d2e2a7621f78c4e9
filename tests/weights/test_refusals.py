"""The converter takes weights in every form, refuses what it cannot convert, and drops nothing silently."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from fairseq_poolingformer.weights import ConversionError, files, loading
from fairseq_poolingformer.weights import convert as conversion
from tests.models import tiny_huggingface
from tests.weights.conftest import run

ROWS = len(tiny_huggingface.vocabulary())


@pytest.mark.parametrize("form", ["bin", "sharded", "base model", "half"])
def test_weights_in_other_forms(tmp_path, form):
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    path = source / "model.safetensors"
    whole = load_file(path)
    path.unlink()
    if form == "bin":
        # As older versions saved it: the tied embedding under all its names, and the logits' bias.
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        more = {**dict.fromkeys(names, whole["model.shared.weight"]), "final_logits_bias": torch.zeros(1, ROWS)}
        more |= {f"model.{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
        torch.save({**whole, **more, "config": {"d_model": 24}}, source / "pytorch_model.bin")
    elif form == "sharded":
        shards = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(whole)}
        for shard in set(shards.values()):
            save_file({name: whole[name] for name in whole if shards[name] == shard}, source / shard)
        (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    elif form == "base model":
        save_file({name.removeprefix("model."): tensor for name, tensor in whole.items()}, path)
    else:
        whole = {name: tensor.half() for name, tensor in whole.items()}
        save_file(whole, path)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    whole.pop("final_logits_bias")  # always zero, and Hugging Face does not ask for it
    torch.testing.assert_close(load_file(tmp_path / "back" / "model.safetensors"), whole, rtol=0, atol=0)


def test_windows_that_transformers_cannot_run():
    """Its models pad inputs to a multiple of the largest window, which each layer's own must divide."""
    assert loading.two_sided({"encoder_layers": 3, "window_size": "3,15,5"}) == [6, 30, 10]
    for window_size in ("4,6,4", "2,3,5"):
        with pytest.raises(ConversionError, match="each layer's window must divide"):
            loading.two_sided({"encoder_layers": 3, "window_size": window_size})


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
    assert "model.safetensors is damaged or cut short" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "limit"), [("decoder_start_token_id", 0), ("forced_bos_token_id", 0)])
def test_conventions_of_generation_are_told(key, limit):
    model = tiny_huggingface.model("bart")
    converted = conversion.to_fairseq({**model.config.to_dict(), key: limit}, dict(model.state_dict()))
    assert any(key in note for note in converted.notes)


SIZES = dict.fromkeys(conversion.FAMILIES["bart"].needed, 8)
OURS = {"arch": "poolingformer_bart_base"}


NO_SIZES = ("x", "1", -1, 0, 1.0, None)
POOLINGFORMER = [  # setting, value, what is wrong with it
    ("max_source_positions", None, "is no size"),
    ("pool_type", 3, "is not a text"),
    ("activation_fn", ["gelu"], "is not a text"),
    ("separate_global_projections", 0.5, "is not true or false"),
    ("global_tokens", "1", "is not a whole number"),
    ("dropout", "0.1", "is not a number"),
]


@pytest.mark.parametrize(
    ("model_type", "settings", "state", "message"),
    [
        *(
            ("poolingformer-bart", {**OURS, name: value}, {}, f"{name} .*, which {wrong}")
            for name, value, wrong in POOLINGFORMER
        ),
        *(
            ("bart", {**dict.fromkeys(SIZES, False), "encoder_layers": size}, {}, f"layers {size!r}, which is no size")
            for size in NO_SIZES
        ),
        *(
            ("bart", {}, {"encoder.embed_tokens.weight": torch.zeros(shape)}, "no token embedding")
            for shape in ((), (3,))
        ),
        (
            None,
            {**OURS, "pooled_layers": "none", "encoder_normalize_before": True, "decoder_normalize_before": False},
            {"encoder.embed_tokens.weight": torch.zeros(8, 8)},
            "decoder_normalize_before is False; Hugging Face's mBART has only True",
        ),
    ],
)
def test_settings_and_weights_that_transformers_cannot_have(model_type, settings, state, message):
    with pytest.raises(ConversionError, match=message):
        conversion.to_huggingface({"arch": "bart_base", **SIZES, **settings}, state, model_type=model_type)


@pytest.mark.parametrize("model_type", ["poolingformer-bart", "poolingformer-mbart"])
def test_a_config_without_positions_is_refused(model_type):
    config = {**tiny_huggingface.config("bart").to_dict(), "model_type": model_type, "max_position_embeddings": None}
    config |= dict.fromkeys(("normalize_before", "add_final_layer_norm"), model_type.endswith("mbart"))
    with pytest.raises(ConversionError, match="lacks max_decoder_position_embeddings, max_position_embeddings"):
        conversion.to_fairseq(config, {})


def test_two_that_make_one_folder(tmp_path):
    """The second is refused before its work; what a killed one left is removed by the next."""
    with files.new_folder(tmp_path / "new") as folder:
        (folder / "x").write_text("first")
        if not (child := os.fork()):
            try:
                files.require_new_folder(tmp_path / "new")
            except ConversionError as error:
                os._exit(f"{tmp_path / 'new'}: another process is making this folder" not in str(error))
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "new" / "x").read_text() == "first"
    if not (child := os.fork()):
        with files.new_folder(tmp_path / "other"):
            os._exit(0)
    os.waitpid(child, 0)
    assert len(os.listdir(tmp_path)) == 2
    with files.new_folder(tmp_path / "other"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["new", "other"]
    assert (os.listdir(tmp_path / "new"), os.listdir(tmp_path / "other")) == (["x"], [])


@pytest.mark.parametrize("name", ["x" * 256, "file/new"])
def test_a_folder_that_cannot_be_made_is_told_before_the_work(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"File name too long|Not a directory|File exists") as caught:
        files.require_new_folder(tmp_path / name)
    assert str(tmp_path) in str(caught.value)

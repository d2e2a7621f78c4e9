"""What of a checkpoint's configuration is used: the options that build a model, of their type and within bounds."""

import contextlib
import math
import os
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_REGISTRY, build_criterion
from omegaconf import OmegaConf

from fairseq_poolingformer.checkpoint_reader.checkpoints import CheckpointError
from fairseq_poolingformer.checkpoint_reader.option_schema import (
    TEXTS,
    ConfigurationError,
    Option,
    accepted,
)
from fairseq_poolingformer.patches import table
from fairseq_poolingformer.patches.untrusted_files.own_options import (
    check_configuration,
    data_folder,
    declared,
    restricted,
)
from tests import hostile_configurations
from tests.models import tiny_bart

table.apply()

MODEL = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--pooled-layers", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bart.write_data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def good(folder):
    """Options and parameters of a checkpoint in which nothing is wrong."""
    _, model = tiny_bart.build(folder, *MODEL)
    return vars(tiny_bart.parse(folder, *MODEL)), model.state_dict()


def kept(good, sections=False, **changed):
    """The options that are used of a checkpoint with other ones: of the model, and of the task and the criterion."""
    options = {**good[0], **changed}
    if not sections:
        found = vars(restricted({"args": Namespace(**options), "model": good[1]}, Path("x/x.pt"))["args"])
        return found, found, found
    cfg = {kind: {**options, "_name": options.get(kind)} for kind in ("task", "criterion", "generation", "common")}
    cfg |= {"model": Namespace(**options, _name=options["arch"]), "bpe": {"_name": "gpt2", **options}}
    cfg = restricted({"args": None, "cfg": cfg, "model": good[1]}, Path("x/x.pt"))["cfg"]
    assert cfg["bpe"] is None
    assert cfg["generation"]["replace_unk"] is None
    assert cfg["common"]["user_dir"] is None
    return vars(cfg["model"]), cfg["task"], cfg["criterion"]


@pytest.mark.parametrize("sections", [False, True])
def test_what_builds_a_model_is_kept(good, sections):
    model, task, _ = kept(good, sections)
    for name in ("encoder_layers", "encoder_embed_dim", "pooled_layers", "window_size", "pool_type", "activation_fn"):
        assert model[name] == good[0][name]
    assert task["max_source_positions"] == good[0]["max_source_positions"]
    assert task["source_lang"] == good[0]["source_lang"]


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize(
    "value",
    ["/etc/passwd", "pipe", "http://127.0.0.1/${oc.env:TOKEN}", "${oc.env:TOKEN}", "x.txt", ["/etc/passwd"], {}],
)
def test_no_path_address_or_interpolation_is_kept(good, sections, value):
    names = {*hostile_configurations.KNOWN, *(name for name in good[0] if isinstance(good[0][name], str | None))}
    names -= {*TEXTS, "task", "arch", "attention_backend", "sample_break_mode", "dataset_impl"}
    names = {name for name in names if not declared("task", "long_summarization").get(name, Option()).choices}
    names -= {name for name, option in declared("model", good[0]["arch"]).items() if option.kind not in (None, str)}
    names -= {name for name, option in declared("task", "long_summarization").items() if option.kind not in (None, str)}
    for part in kept(good, sections, **dict.fromkeys(names, value)):
        assert [name for name in part if type(part[name]) is type(value) and part[name] == value] == []


def test_no_option_of_any_model_task_or_criterion_takes_a_path():
    """Whatever texts an option may be, a path, an address, an interpolation and code are none of them."""
    names = hostile_configurations.option_names()
    followed = set()
    for kind in ("model", "task", "criterion"):
        for name in names[f"known {kind}"]:
            for option, declaration in declared(kind, name).items():
                values = ("/etc/passwd", "../x", "x.txt", "http://x", "${oc.env:HOME}", "open('x')")
                is_text = declaration.kind in (None, str) and not declaration.choices and option not in TEXTS
                for value in (*values, *((0, True) if is_text else ())):  # numbers of open files
                    with contextlib.suppress(ConfigurationError):
                        followed |= {option} if accepted(option, value, declaration) else set()
    assert followed <= {"_name"}


WRONG = ["x", [], {}, [1, [2]], True, 1.5, math.nan, math.inf, -3, 2**40, 10**5000, 10**6, 2**23]


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("name", ["encoder_layers", "decoder_ffn_embed_dim", "encoder_attention_heads"])
@pytest.mark.parametrize(
    "value", WRONG, ids=[str(type(value)) + str(value)[:9] for value in WRONG[:10]] + ["a", "b", "c"]
)
def test_a_size_is_a_number_of_what_the_tensors_have(good, sections, name, value):
    with pytest.raises(ConfigurationError, match=f"its option {name} is "):
        kept(good, sections, **{name: value})


def test_sizes_are_compared_with_the_tensors(good):
    for name, value, tensor in (
        ("encoder_layers", 4, "3 layers"),
        ("encoder_embed_dim", 64, r"encoder.embed_tokens.weight is \(34, 32\)"),
        ("decoder_ffn_embed_dim", 257, r"fc1.weight is \(48, 32\)"),
        ("max_target_positions", 5000, r"decoder.embed_positions.weight is \(1026, 32\)"),
        ("decoder_output_dim", 2**20, r"none of its tensors is so wide; the widest, encoder.embed_positions.weight"),
    ):
        with pytest.raises(ConfigurationError, match=f"its option {name} is {value:,}.*{tensor}"):
            kept(good, **{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"encoder_embed_path": "{pipe}", "decoder_embed_path": "{pipe}", "embed_path": "{pipe}"},
        {"encoder_ffn_embed_dim": 2**22},
        {"arch": "transformer_lm_gpt2_big", "task": "language_modeling"},
        {"arch": "fconv", "task": "translation", "encoder_layers": "[(512, 3)] * 900", "decoder_layers": "[(512, 3)]"},
        {"pool_kernel_size": 2**16, "ldconv_heads": 4},
        {"use_plasma_view": True, "task": "language_modeling", "arch": "transformer_lm", "tokens_per_sample": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nothing_is_opened_and_no_large_model_is_made(tmp_path, good, folder, change, monkeypatch):
    """Each of these truncated a file, waited for a pipe, or took gigabytes before shapes were compared."""
    user, pipe = tmp_path / "user", tmp_path / "pipe"
    user.write_text("mine")
    os.mkfifo(pipe)
    change = {k: v.format(user=user, pipe=pipe) if isinstance(v, str) else v for k, v in change.items()}
    history = [{"num_updates": 1, "optimizer_name": "Adam", "lr_scheduler_state": {}}]
    extra = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    args = Namespace(**{**good[0], **change})
    state = {"args": args, "model": good[1], "optimizer_history": history, "extra_state": extra}
    torch.save(state, tmp_path / "x.pt")
    made, normal = [], torch.nn.init.normal_

    def counted(tensor, *args, **kwargs):
        made.append(tensor.numel())
        return normal(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.nn.init, "normal_", counted)
    try:
        _, cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")], {"data": str(folder)})
        task.build_criterion(cfg.criterion)
    except (CheckpointError, FileNotFoundError, TypeError, ValueError):
        pass
    assert sum(made) < 2**27
    assert user.read_text() == "mine"


@pytest.mark.parametrize("sections", [False, True])
def test_no_predictions_are_written(tmp_path, good, sections):
    """sentence_ranking opens its ``save_predictions`` for writing as soon as it is built."""
    (tmp_path / "user").write_text("mine")
    changed = {"criterion": "sentence_ranking", "task": "sentence_ranking", "num_classes": 2, "ranking_head_name": "x"}
    _, task, criterion = kept(good, sections, save_predictions=str(tmp_path / "user"), **changed)
    assert task["num_classes"] == 2
    options = Namespace(**{"save_predictions": None, **task, **criterion})
    CRITERION_REGISTRY["sentence_ranking"].build_criterion(options, None)
    assert (tmp_path / "user").read_text() == "mine"


def test_the_users_own_overrides_are_followed(tmp_path, good, folder):
    from fairseq_poolingformer.weights.files import write_checkpoint

    write_checkpoint(tmp_path / "x.pt", {**good[0], "max_source_positions": 4096}, good[1])
    overrides = {"data": str(folder), "max_source_positions": 9000, "dropout": 0.5}
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")], overrides)
    assert model.encoder.max_positions() == 9000
    assert cfg.model.dropout == 0.5


def test_the_data_folder_that_a_checkpoint_records(tmp_path):
    """It is used where nothing lies beside the checkpoint."""
    checkpoint, data = tmp_path / "run" / "x.pt", tmp_path / "data"
    checkpoint.parent.mkdir()
    data.mkdir()
    assert data_folder(checkpoint, str(data)) == checkpoint.parent
    (data / "dict.source.txt").write_text("a 1\n")
    assert data_folder(checkpoint, f"{data}:other") == data
    assert data_folder(checkpoint, [str(data)]) == data
    (checkpoint.parent / "dict.txt").write_text("a 1\n")
    assert data_folder(checkpoint, str(data)) == checkpoint.parent


def test_an_option_that_hydra_refuses_is_a_sentence(tmp_path, good, folder):
    from fairseq_poolingformer.weights.files import write_checkpoint

    write_checkpoint(tmp_path / "x.pt", {**good[0], "eval_rouge_args": None}, good[1])
    with pytest.raises(CheckpointError, match=r"x\.pt cannot be used: .*eval_rouge_args"):
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")], {"data": str(folder)})


def test_names_that_fairseq_replaces_are_refused():
    for option, name in (("criterion", "binary_cross_entropy"), ("task", "speech_pretraining"), ("arch", "audio_cpc")):
        with pytest.raises(ConfigurationError, match="may name only"):
            check_configuration({"args": Namespace(**{option: name})})


def test_a_training_goes_on_speaking_of_changed_options(good):
    cfg = {"model": Namespace(**good[0]), "optimization": {"clip_norm": 0.3, "lr": [2e-5], "stop_time_hours": 3}}
    cfg["optimization"]["update_freq"] = [8]
    cfg |= {"optimizer": {"_name": "adam", "adam_betas": "(0.9, 0.98)", "fp16_adam_stats": "${oc.env:TOKEN}"}}
    sections = restricted({"cfg": cfg, "model": good[1]}, Path("x.pt"))["cfg"]
    found = sections["optimization"]
    assert (found["clip_norm"], found["lr"], found["update_freq"]) == (0.3, [2e-5], [8])
    assert sections["optimization"]["stop_time_hours"] == 0
    assert sections["optimizer"] == {"_name": "adam", "adam_betas": "(0.9, 0.98)"}


def test_data_that_is_no_text_is_not_a_folder(tmp_path, good):
    from fairseq_poolingformer.weights import files

    files.write_checkpoint(tmp_path / "x.pt", {**good[0], "data": True}, good[1])
    assert "data" not in files.read_training(tmp_path / "x.pt")[0]


def test_a_loss_that_refuses_a_way_of_training_is_built(good):
    sections = {"model": Namespace(**good[0]), "criterion": {"_name": "adaptive_loss", "ddp_backend": "pytorch_ddp"}}
    kept_sections = restricted({"cfg": sections, "model": good[1]}, Path("x.pt"))["cfg"]
    cfg = OmegaConf.create(kept_sections, flags={"allow_objects": True})
    assert type(build_criterion(cfg.criterion, None)).__name__ == "AdaptiveLoss"


@pytest.mark.parametrize("sections", [False, True])
def test_a_number_is_not_none(good, sections):
    """The architecture gives its own, as where the option is not there; what may be None stays so."""
    model, *_ = kept(good, sections, attention_dropout=None, decoder_layers=None, attention_backend=None)
    assert "attention_dropout" not in model
    assert "decoder_layers" not in model
    assert model["attention_backend"] is None

"""Checkpoints: save, resume, generate and validate through the allow-list, and the errors for people."""

import argparse
import pickle
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.logging import meters
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_poolingformer.compat import CheckpointError
from fairseq_poolingformer.compat.checkpoints import load
from tests.compat.helpers import (
    PACKAGE,
    TRAINING,
    TRANSLATION,
    assert_same_parameters,
    generate,
    parse,
    run,
    train,
    unpatched,
)


@pytest.fixture
def empty_list():
    """torch's own list alone, as it is without the patch."""
    kept = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.add_safe_globals(kept)


class OffTheList:
    """Something a checkpoint has no business holding."""


class AlsoOffTheList(OffTheList):
    """Another."""


ALLOWED = {
    "Namespace": argparse.Namespace(arch="bart_large", lr=[0.1]),
    "Dictionary": Dictionary(),
    "numpy float": numpy.float64(27.5),
    "numpy int": numpy.int64(3),
    "numpy bool": numpy.bool_(True),
    "numpy array": numpy.arange(3.0),
    "numpy int array": numpy.arange(3),
    "numpy text": numpy.array(["a", "bc"]),
    "DictConfig": OmegaConf.create({"a": {"b": [1, 2.5, "c", None, True]}}),
    "tensor sent to other ranks": _TensorPlaceholder(3),
    "meter": meters.AverageMeter(),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_checkpoints_hold_loads(tmp_path, name):
    torch.save({"held": ALLOWED[name]}, tmp_path / "x.pt")
    held = load(tmp_path / "x.pt")["held"]
    assert isinstance(held, type(ALLOWED[name]))


@pytest.mark.parametrize("name", ALLOWED)
def test_none_of_it_loads_without_the_list(tmp_path, name, empty_list):
    torch.save({"held": ALLOWED[name]}, tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("held", "now", "then"),
    [
        (numpy.float64(27.5), b"numpy._core.multiarray", b"numpy.core.multiarray"),
        (numpy.arange(3.0), b"numpy._core.multiarray", b"numpy.core.multiarray"),
        (meters.TimeMeter(), b"fairseq.logging.meters", b"fairseq.meters"),
    ],
)
def test_former_module_names_load(tmp_path, held, now, then):
    torch.save({"held": held}, tmp_path / "now.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "now.pt").read_bytes().replace(now, then)
    assert then in content
    (tmp_path / "then.pt").write_bytes(content)
    assert isinstance(load(tmp_path / "then.pt")["held"], type(held))


@pytest.mark.parametrize("zipped", [True, False])
def test_refusal_names_file_class_and_remedy(tmp_path, zipped):
    path = tmp_path / "x.pt"
    torch.save({"a": OffTheList()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    message = str(caught.value)
    assert str(path) in message
    assert "test_checkpoints.OffTheList" in message
    assert "add_safe_globals" in message
    assert "weights_only" not in message  # torch's own message proposes to turn it off


def test_refusal_names_all_classes_at_once(tmp_path):
    torch.save({"a": OffTheList(), "b": AlsoOffTheList()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"AlsoOffTheList, .*\.OffTheList"):
        load(tmp_path / "x.pt")


def test_code_in_a_checkpoint_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Runs()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_checkpoint(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"x\.pt cannot be read as a checkpoint"):
        load(tmp_path / "x.pt")


def test_save_resume_generate_validate(corpus, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--best-checkpoint-metric", "bleu"]
    bleu = [*bleu, "--maximize-best-checkpoint-metric", "--eval-bleu-detok", "space"]
    ema = ["--store-ema", "--ema-fp32", "--ema-start-update", "1"]
    train(corpus, tmp_path / "twice", "--max-update", 3, *bleu, *ema)
    resumed = train(corpus, tmp_path / "twice", "--max-update", 6, *bleu, *ema)
    assert resumed["optimizer_history"][-1]["num_updates"] == 6
    assert_same_parameters(resumed, train(corpus, tmp_path / "once", "--max-update", 6, *bleu, *ema))

    checkpoint = tmp_path / "twice" / "checkpoint_last.pt"
    assert len(generate(corpus, checkpoint, "--batch-size", 4)) == 12
    assert checkpoint_utils.load_ema_from_checkpoint(str(checkpoint))["model"].keys() == resumed["model"].keys()

    from fairseq_cli.validate import main

    arguments = [corpus, *TRANSLATION, "--path", checkpoint, "--batch-size", 4, "--cpu", "--num-workers", 0]
    main(parse(options.get_validation_parser(), arguments))


def test_a_model_with_add_args_needs_the_list(corpus, tmp_path, empty_list):
    """fairseq keeps the options of a model with ``add_args`` as a Namespace."""
    arguments = ["--max-update", 2, "--arch", "transformer_align", "--criterion", "label_smoothed_cross_entropy"]
    with pytest.raises(CheckpointError, match=r"argparse\.Namespace"):
        train(corpus, tmp_path, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--restore-file", "absent.pt"],
        ["--restore-file", "absent.pt", "--reset-optimizer", "--reset-dataloader"],
        ["--restore-file", "."],
        ["--finetune-from-model", "."],
    ],
)
def test_missing_checkpoint_stops(corpus, tmp_path, arguments):
    with pytest.raises(FileNotFoundError, match="--restore-file"):
        train(corpus, tmp_path, "--max-update", 1, *arguments)
    assert not (tmp_path / "checkpoint_last.pt").exists()


def test_missing_checkpoint_trains_from_scratch_unpatched(corpus, tmp_path, monkeypatch):
    unpatched(monkeypatch, Trainer, "load_checkpoint")
    state = train(corpus, tmp_path, "--max-update", 1, "--restore-file", "absent.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 1


def test_restore_and_finetune_keep_their_meaning(corpus, tmp_path):
    first = tmp_path / "first" / "checkpoint_last.pt"
    train(corpus, first.parent, "--max-update", 2)
    restored = train(corpus, tmp_path / "restored", "--max-update", 3, "--restore-file", first)
    assert restored["optimizer_history"][-1]["num_updates"] == 3
    reset = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]
    restarted = train(corpus, tmp_path / "reset", "--max-update", 1, "--restore-file", first, *reset)
    tuned = train(corpus, tmp_path / "tuned", "--max-update", 1, "--finetune-from-model", first)
    assert_same_parameters(restarted, tuned)


@pytest.mark.slow
def test_missing_checkpoint_on_the_command_line(corpus, tmp_path):
    done = run(
        "fairseq_cli.train", corpus, *TRAINING, "--user-dir", PACKAGE, "--restore-file", "absent.pt", cwd=tmp_path
    )
    assert done.returncode != 0
    assert "absent.pt, is not there" in done.stderr.splitlines()[-1]


def test_loading_the_ema_model_is_explained_too(tmp_path):
    torch.save({"a": OffTheList()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError):
        checkpoint_utils.load_ema_from_checkpoint(str(tmp_path / "x.pt"))

"""A resumed training goes on as if it had not been stopped."""

import logging
import signal
from argparse import Namespace
from types import SimpleNamespace
from unittest import mock

import fairseq_cli.train
import pytest
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import CheckpointError, interruption
from fairseq_poolingformer.patches.resuming import check
from tests.patches.helpers import (
    DOCUMENTS,
    PACKAGE,
    TORCHRUN,
    assert_same_parameters,
    end_of_process,
    num_updates,
    run,
    train,
    train_on_documents,
)

fairseq_poolingformer.register()

# ----- validations

PLATEAU = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5, "--lr", 0.1]
EPOCHS = 7


@pytest.fixture
def documents_read(monkeypatch):
    """The numbers of the documents of each batch that is trained on."""
    batches, train_step = [], Trainer.train_step
    monkeypatch.setattr(
        Trainer,
        "train_step",
        lambda self, samples, *more: (
            batches.extend(sample["id"].tolist() for sample in samples) or train_step(self, samples, *more)
        ),
    )
    return batches


OTHER_BATCHES = {
    "smaller": ["--batch-size", 2],
    "larger": ["--batch-size", 7],
    "by tokens": ["--batch-size", 100, "--max-tokens", 30],
    "shorter documents": ["--max-source-positions", 5],
    "seed": ["--seed", 8],
    "batches an update": ["--update-freq", 2],
}


@pytest.mark.parametrize("flags", OTHER_BATCHES.values(), ids=OTHER_BATCHES)
def test_other_batches_within_an_epoch_read_each_document_once(documents, tmp_path, documents_read, flags):
    more = ["--disable-validation", "--no-epoch-checkpoints"]
    train_on_documents(documents, tmp_path / "run", *more, "--max-update", 9)
    assert list(map(len, documents_read)) == [4] * 9
    train_on_documents(documents, tmp_path / "run", *more, "--max-epoch", 2, *flags)
    read = [number for batch in documents_read for number in batch]
    assert sorted(read[:24]) == sorted(read[24:]) == list(range(24))


@pytest.mark.full
def test_one_process_continues_an_epoch_of_two_and_two_that_of_one(documents, tmp_path):
    """In the same order: the updates are those of one process, with twice the batches, that was not stopped."""
    arguments = [documents, *DOCUMENTS, "--ddp-backend", "legacy_ddp", "--disable-validation"]
    arguments += ["--no-epoch-checkpoints", "--save-dir", tmp_path / "parts"]
    run(*TORCHRUN, "tests.patches.resume_and_gather", *arguments, "--max-update", 1, cwd=PACKAGE.parent)
    run("fairseq_cli.train", *arguments, "--update-freq", 2, "--max-update", 4, cwd=tmp_path)
    done = run(*TORCHRUN, "tests.patches.resume_and_gather", *arguments, "--max-update", 5, cwd=PACKAGE.parent)
    assert "gathered on 1" in done.stdout
    whole = ["--disable-validation", "--update-freq", 2, "--max-update", 5]
    whole = train_on_documents(documents, tmp_path / "whole", *whole)
    assert_same_parameters(load(tmp_path / "parts" / "checkpoint_last.pt"), whole)


def test_checkpoints_of_stock_tasks_have_no_entry_of_ours(corpus, tmp_path):
    state = train(corpus, tmp_path, "--max-update", 2)
    extra = state["extra_state"]
    assert extra["train_iterator"] == {"version": 2, "epoch": 1, "iterations_in_epoch": 2, "shuffle": True}
    assert extra.keys() <= {"metrics", "previous_training_time", "train_iterator", "val_loss", "best"}


def train_in_parts(documents, folder, *flags, epochs=EPOCHS):
    for epoch in range(1, epochs + 1):
        state = train_on_documents(documents, folder, "--max-epoch", epoch, *flags)
        end_of_process()
    return state


def rate(state):
    return state["last_optimizer_state"]["param_groups"][0]["lr"]


def test_the_learning_rate_falls_as_without_the_stops(documents, tmp_path):
    more = ["--warmup-updates", 8, "--fp16"]
    whole = train_on_documents(documents, tmp_path / "whole", "--max-epoch", EPOCHS, *PLATEAU, *more)
    parts = train_in_parts(documents, tmp_path / "parts", *PLATEAU, *more)
    assert rate(whole) == rate(parts) <= 0.05
    assert_same_parameters(whole, parts, rtol=0, atol=0)
    states = [state["extra_state"] | state["optimizer_history"][-1]["lr_scheduler_state"] for state in (whole, parts)]
    for name in ("best", "num_bad_epochs", "cooldown_counter"):  # its count of epochs decides nothing
        assert states[0][name] == states[1][name]


def test_patience_ends_a_training_where_it_would_have_ended(documents, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    flags = ["--patience", 3, "--lr", 0.1]
    whole = train_on_documents(documents, tmp_path / "whole", "--max-epoch", 20, *flags)
    updates = num_updates(whole)
    assert updates < 20 * 6
    parts = train_in_parts(documents, tmp_path / "parts", *flags, epochs=updates // 6 + 2)
    assert num_updates(parts) == updates
    assert_same_parameters(whole, parts, rtol=0, atol=0)
    assert "the training is finished: its last 3 validations were no better than" in caplog.text


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_signal_at_the_end_of_an_epoch_leaves_no_loss_out(documents, tmp_path, monkeypatch, caplog, is_killed):
    """Unless a kill follows before the epoch is validated, which the next start says."""
    whole = train_on_documents(documents, tmp_path / "whole", "--max-epoch", 4, *PLATEAU)
    end_of_process()
    with monkeypatch.context() as patch:
        patch.setattr(interruption, "_any_process_asked", lambda trainer: trainer.get_num_updates() == 18)
        patch.setattr(signal, "signal", lambda *arguments: None)
        train_on_documents(documents, tmp_path / "parts", "--max-epoch", 2, *PLATEAU)
        if is_killed:
            patch.setattr(fairseq_cli.train, "validate", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt if is_killed else SystemExit):
            train_on_documents(documents, tmp_path / "parts", "--max-epoch", 4, *PLATEAU)
    end_of_process()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        parts = train_on_documents(documents, tmp_path / "parts", "--max-epoch", 4, *PLATEAU)
    assert ("was saved before epoch 3 was validated: that loss counts" in caplog.text) == is_killed
    if not is_killed:
        assert load(tmp_path / "parts" / "checkpoint3.pt")["extra_state"]["val_loss"] is not None
        assert_same_parameters(whole, parts, rtol=0, atol=0)


# ----- options that changed

MODEL = {"arch": "x", "pooled_layers": "6-11", "window_size": "128", "pool_type": "ldconv", "dropout": 0.1}
COMMAND = {"user_dir": "a", "save_dir": "a", "max_update": 5}


def configuration(model=(), as_namespace=True, **groups):
    model = {**MODEL, **dict(model)}
    groups = {"task": {"data": "???", "max_positions": 8}, "checkpoint": {"save_dir": "a"}, **groups}
    groups = {"optimization": {"update_freq": [1], "max_update": 5}, **groups}
    options = Namespace(**{**COMMAND, **model}) if as_namespace else model
    return OmegaConf.create({"model": options, **groups}, flags={"allow_objects": True})


def compare(before, now, anew=False):
    check("x.pt", {"cfg": before}, SimpleNamespace(cfg=now, task=None, get_model=lambda: None), anew)


@pytest.mark.parametrize("as_namespace", [True, False])
@pytest.mark.parametrize(("name", "value"), [("pooled_layers", "3-5"), ("pool_type", "mean-ldconv")])
def test_options_that_change_what_parameters_mean_are_refused(name, value, as_namespace):
    now = configuration({name: value}, as_namespace)
    with pytest.raises(CheckpointError, match=rf"--{name.replace('_', '-')} {MODEL[name]} \(now {value}\): with other"):
        compare(configuration(as_namespace=as_namespace), now)
    compare(configuration(as_namespace=as_namespace), now, anew=True)


def test_other_changes_and_old_checkpoints_are_taken():
    compare(configuration(), configuration({"window_size": "64", "dropout": 0.0}, optimization={"update_freq": [2]}))
    compare(configuration({"window_size": 128}), configuration())
    compare(configuration({"encoder_layerdrop": 0.0}), configuration({"encoder_layerdrop": 0}))
    compare(configuration({"window_size": "128, 128"}), configuration({"pooled_layers": "6,7,8-11"}))
    compare(None, configuration())
    compare(configuration({"pooled_layers": None}), configuration())


# ----- curves


def test_tensorboard_has_the_losses_of_the_log(corpus, tmp_path, caplog):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(corpus, tmp_path / "run", "--max-update", 4, "--log-interval", 2, "--tensorboard-logdir", tmp_path / "curves")
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["train", "train_inner", "valid"]
    curves = {}
    for name in ("train_inner", "valid"):
        reader = events.EventAccumulator(str(tmp_path / "curves" / name))
        reader.Reload()
        curves[name] = {event.step: event.value for event in reader.Scalars("loss")}
    assert list(curves["train_inner"]) == [2, 4]
    (validated,) = [record for record in caplog.records if "valid on" in record.getMessage()]
    shown = validated.getMessage().split("| loss ")[1].split(" ")[0]
    assert f"{curves['valid'][4]:.3f}".rstrip("0") == shown.rstrip("0")

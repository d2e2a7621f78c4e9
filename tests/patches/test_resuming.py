"""A resumed training goes on as if it had not been stopped."""

import logging
import signal
from argparse import Namespace
from types import SimpleNamespace
from unittest import mock

import fairseq_cli.train
import numpy as np
import pytest
from fairseq import options
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from omegaconf import OmegaConf

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import CheckpointError, interruption
from fairseq_poolingformer.patches.resuming import check
from tests.models import tiny_bart
from tests.patches.helpers import TRAINING, TRANSLATION, assert_same_parameters, num_updates, parse, train

# ----- place in the epoch

fairseq_poolingformer.register()


class Numbers(FairseqDataset):
    def __getitem__(self, index):
        return index

    def __len__(self):
        return 24

    def collater(self, samples):
        return samples


def iterators(processes):
    dataset, batches = Numbers(), [[2 * number, 2 * number + 1] for number in range(12)]
    return [
        EpochBatchIterator(dataset, dataset.collater, batches, seed=3, num_shards=processes, shard_id=rank)
        for rank in range(processes)
    ]


def read(epoch_iterators, batches=None):
    """The examples that the processes read, so many batches each or all, in the order in which they do."""
    epochs = [iterator.next_epoch_itr(shuffle=True) for iterator in epoch_iterators]
    shares = [[next(epoch) for _ in range(batches if batches else len(epoch) - epoch.n)] for epoch in epochs]
    return [example for turn in zip(*shares, strict=True) for batch in turn for example in batch]


@pytest.mark.parametrize(("before", "batches", "now"), [(2, 3, 1), (1, 4, 4), (4, 1, 2), (3, 2, 3), (2, 6, 3)])
def test_every_batch_is_read_once_and_in_order(before, batches, now, caplog):
    saved, resumed = iterators(before), iterators(now)
    done = read(saved, batches)
    for iterator in resumed:
        iterator.load_state_dict(saved[0].state_dict())
    rest = [] if batches * before == 12 else read(resumed)
    assert done + rest == read(iterators(1))
    said = f"saved by {before} processes and is continued by {now}" in caplog.text
    assert said == (before != now)


def test_batches_that_do_not_divide_are_read_again_and_counted(caplog):
    saved, resumed = iterators(3), iterators(2)
    done = read(saved, 1)
    for iterator in resumed:
        iterator.load_state_dict(saved[0].state_dict())
    assert done[:4] + read(resumed) == read(iterators(1))
    assert "3 batches of this epoch have been read, of which 1 are read again" in caplog.text


def test_checkpoints_of_fairseq_load(caplog):
    (iterator,) = iterators(1)
    iterator.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 2, "shuffle": True})
    assert read([iterator]) == read(iterators(1))[4:]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# ----- validations

PLATEAU = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5, "--lr", 0.1]
EPOCHS = 7


@pytest.fixture
def documents(tmp_path):
    rng = np.random.default_rng(0)
    examples = [(rng.integers(4, 12, rng.integers(3, 9)).tolist(), rng.integers(4, 12, 3).tolist()) for _ in range(36)]
    end_of_process()
    yield tiny_bart.write_data_folder(tmp_path / "data", 8, {"train": examples[:24], "valid": examples[24:]})
    end_of_process()


def train_on_documents(documents, folder, *flags):
    """fairseq's own tasks compose other batches after a resume, so this is a task of the plugin."""
    task = ["--user-dir", tiny_bart.USER_DIR, "--task", "long_summarization"]
    arguments = [documents, *TRAINING[len(TRANSLATION) :], *task, "--save-dir", folder, *flags]
    fairseq_cli.train.main(parse(options.get_training_parser(), arguments))
    return load(folder / "checkpoint_last.pt")


def end_of_process():
    for name in ("best", "num_runs"):
        vars(fairseq_cli.train.should_stop_early).pop(name, None)


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
    check("x.pt", {"cfg": before}, SimpleNamespace(cfg=now, task=None), anew)


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


def test_a_training_refuses(corpus, tmp_path):
    train(corpus, tmp_path, "--max-update", 1)
    train(corpus, tmp_path, "--max-update", 2, "--update-freq", 2)
    with pytest.raises(CheckpointError, match=r"--encoder-attention-heads 2 \(now 4\): with other values"):
        train(corpus, tmp_path, "--max-update", 5, "--encoder-attention-heads", "4")


# ----- curves


def test_tensorboard_has_the_losses_of_the_log(corpus, tmp_path, caplog):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(corpus, tmp_path / "run", "--max-update", 4, "--log-interval", 2, "--tensorboard-logdir", tmp_path / "curves")
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["train", "train_inner", "valid"]
    curves = {}
    for run in ("train_inner", "valid"):
        reader = events.EventAccumulator(str(tmp_path / "curves" / run))
        reader.Reload()
        curves[run] = {event.step: event.value for event in reader.Scalars("loss")}
    assert list(curves["train_inner"]) == [2, 4]
    (validated,) = [record for record in caplog.records if "valid on" in record.getMessage()]
    shown = validated.getMessage().split("| loss ")[1].split(" ")[0]
    assert f"{curves['valid'][4]:.3f}".rstrip("0") == shown.rstrip("0")

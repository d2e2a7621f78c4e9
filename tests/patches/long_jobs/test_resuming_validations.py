"""--patience and reduce_lr_on_plateau in a training that is continued after every epoch."""

import logging
import signal

import fairseq_cli.train
import numpy as np
import pytest
import torch
from fairseq import options

import fairseq_poolingformer
from fairseq_poolingformer import checkpoints as checkpoint_files
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches.long_jobs import interruption
from tests.models import tiny_bart
from tests.patches.helpers import TRAINING, TRANSLATION, assert_same_parameters, parse

fairseq_poolingformer.register()

PLATEAU = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5, "--lr", 0.1]
EPOCHS = 7


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    examples = [(rng.integers(4, 12, rng.integers(3, 9)).tolist(), rng.integers(4, 12, 3).tolist()) for _ in range(36)]
    end_of_process()
    yield tiny_bart.write_data_folder(tmp_path / "data", 8, {"train": examples[:24], "valid": examples[24:]})
    end_of_process()


def train(corpus, folder, *flags):
    """fairseq's own tasks compose other batches after a resume, so this is a task of the plugin."""
    task = ["--user-dir", tiny_bart.USER_DIR, "--task", "long_summarization"]
    arguments = [corpus, *TRAINING[len(TRANSLATION) :], *task, "--save-dir", folder, *flags]
    fairseq_cli.train.main(parse(options.get_training_parser(), arguments))
    return load(folder / "checkpoint_last.pt")


def end_of_process():
    """Forget what a process keeps of its training."""
    for name in ("best", "num_runs"):
        vars(fairseq_cli.train.should_stop_early).pop(name, None)


def train_in_parts(corpus, folder, *flags, epochs=EPOCHS):
    for epoch in range(1, epochs + 1):
        state = train(corpus, folder, "--max-epoch", epoch, *flags)
        end_of_process()
    return state


def rate(state):
    return state["last_optimizer_state"]["param_groups"][0]["lr"]


@pytest.mark.parametrize("more", [[], ["--warmup-updates", 8, "--fp16"]])
def test_the_learning_rate_falls_as_without_the_stops(corpus, tmp_path, more):
    whole = train(corpus, tmp_path / "whole", "--max-epoch", EPOCHS, *PLATEAU, *more)
    parts = train_in_parts(corpus, tmp_path / "parts", *PLATEAU, *more)
    assert rate(whole) == rate(parts) <= 0.05
    assert_same_parameters(whole, parts, rtol=0, atol=0)
    states = [state["extra_state"] | state["optimizer_history"][-1]["lr_scheduler_state"] for state in (whole, parts)]
    for name in ("best", "num_bad_epochs", "cooldown_counter"):  # its count of epochs decides nothing
        assert states[0][name] == states[1][name]


def test_patience_ends_a_training_where_it_would_have_ended(corpus, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    flags = ["--patience", 3, "--lr", 0.1]
    whole = train(corpus, tmp_path / "whole", "--max-epoch", 20, *flags)
    updates = whole["optimizer_history"][-1]["num_updates"]
    assert updates < 20 * 6
    parts = train_in_parts(corpus, tmp_path / "parts", *flags, epochs=updates // 6 + 2)
    assert parts["optimizer_history"][-1]["num_updates"] == updates
    assert_same_parameters(whole, parts, rtol=0, atol=0)
    assert "the training is finished: its last 3 validations were no better than" in caplog.text


def test_an_older_checkpoint_is_continued(corpus, tmp_path):
    train(corpus, tmp_path, "--max-epoch", 2, "--patience", 9, *PLATEAU)
    path = tmp_path / "checkpoint_last.pt"
    state = checkpoint_files.read(path)
    for name in ("early_stopping", "num_bad_epochs", "cooldown_counter"):
        del state["extra_state"][name]
    torch.save(state, path)
    train(corpus, tmp_path, "--max-epoch", 3, "--patience", 9, *PLATEAU)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_signal_at_the_end_of_an_epoch_leaves_no_loss_out(corpus, tmp_path, monkeypatch, caplog, is_killed):
    """Unless a kill follows before the epoch is validated, which the next start says."""
    whole = train(corpus, tmp_path / "whole", "--max-epoch", 4, *PLATEAU)
    end_of_process()
    validate = fairseq_cli.train.validate

    def ask(*arguments):
        if is_killed:
            raise KeyboardInterrupt
        return validate(*arguments)

    def asked_at_the_end(trainer):
        return trainer.get_num_updates() == 18

    with monkeypatch.context() as patch:
        patch.setattr(interruption, "_any_process_asked", asked_at_the_end)
        patch.setattr(signal, "signal", lambda *arguments: None)
        train(corpus, tmp_path / "parts", "--max-epoch", 2, *PLATEAU)
        patch.setattr(fairseq_cli.train, "validate", ask)
        with pytest.raises(KeyboardInterrupt if is_killed else SystemExit):
            train(corpus, tmp_path / "parts", "--max-epoch", 4, *PLATEAU)
    end_of_process()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        parts = train(corpus, tmp_path / "parts", "--max-epoch", 4, *PLATEAU)
    assert ("was saved before epoch 3 was validated: that loss counts" in caplog.text) == is_killed
    if not is_killed:
        assert load(tmp_path / "parts" / "checkpoint3.pt")["extra_state"]["val_loss"] is not None
        assert_same_parameters(whole, parts, rtol=0, atol=0)

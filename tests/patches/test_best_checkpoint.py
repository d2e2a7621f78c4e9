"""--best-checkpoint-metric: refused before the first update, or after a save; another one on resuming begins anew."""

import math

import pytest
from fairseq import checkpoint_utils

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.command import UsageError
from tests.patches.helpers import num_updates, train, train_on_documents
from tests.patches.test_resuming import PLATEAU

OURS = ["--criterion", "linear_cross_entropy"]
MAXIMIZE = "--maximize-best-checkpoint-metric"


def metric(name, *flags):
    return ["--best-checkpoint-metric", name, "--max-epoch", 1, *flags]


REFUSED = [
    ("rouge2", (*OURS, MAXIMIZE), r"rouge2: with these options validation has loss, nll_loss, ppl$"),
    ("nll_los", OURS, r"has loss, nll_loss, ppl; did you mean nll_loss"),
    ("accuracy", (*OURS, "--report-accuracy"), "is better the higher it is: add --maximize-best-checkpoint-metric"),
    ("loss", (MAXIMIZE,), "is better the lower it is: leave out --maximize"),
    ("nll_loss", (*OURS, MAXIMIZE), "leave out"),
    ("rougeLsum", (), "add --maximize"),
]


@pytest.mark.parametrize(("name", "flags", "message"), REFUSED)
def test_it_is_refused_before_the_first_update(documents, tmp_path, name, flags, message):
    with pytest.raises(UsageError, match=message):
        train_on_documents(documents, tmp_path / "run", *metric(name, *flags))
    assert not list((tmp_path / "run").glob("*.pt"))


def test_without_validation_nothing_is_refused(documents, tmp_path):
    train_on_documents(documents, tmp_path / "run", *metric("rouge2", *OURS), "--disable-validation")


def test_one_that_no_validation_has_ends_a_training_that_is_saved(documents, tmp_path):
    """The metrics of a criterion that is not the plugin's are not known before."""
    for epochs in (1, 2):  # also where a best value is known
        flags = metric("other", "--max-epoch", epochs)
        with pytest.raises(
            UsageError, match=r"other: validation has .*\bloss\b.*\bppl\b.*checkpoint_last\.pt is saved"
        ):
            train_on_documents(documents, tmp_path / "run", *flags)
        assert num_updates(load(tmp_path / "run" / "checkpoint_last.pt")) == 6 * epochs
        checkpoint_utils.save_checkpoint.best = 1.0


def test_a_stock_training_ends_as_fairseq_ends_it(corpus, tmp_path):
    with pytest.raises(KeyError, match="other"):
        train(corpus, tmp_path, *metric("other"))
    train(corpus, tmp_path / "lowest", *metric("loss", MAXIMIZE))


def test_another_metric_on_resuming_begins_anew(documents, tmp_path, caplog):
    run, flags = tmp_path / "run", [*PLATEAU, "--patience", 5, *OURS]
    before = train_on_documents(documents, run, *flags, "--max-epoch", 2)
    best = load(run / "checkpoint_best.pt")
    after = train_on_documents(documents, run, *flags, "--max-epoch", 3, "--best-checkpoint-metric", "ppl")
    assert "of --best-checkpoint-metric loss, which is ppl now" in caplog.text
    assert load(run / "checkpoint_best_loss.pt")["extra_state"]["best"] == best["extra_state"]["best"]
    extra = after["extra_state"]
    assert extra["val_loss"] == extra["best"] == extra["early_stopping"]["best"] > before["extra_state"]["best"]
    assert after["optimizer_history"][-1]["lr_scheduler_state"]["best"] == math.inf  # the loss comes after the save
    assert num_updates(load(run / "checkpoint_best.pt")) == 18
    assert extra["early_stopping"]["num_runs"] == 0
    caplog.clear()
    train_on_documents(documents, run, *flags, "--max-epoch", 4, "--best-checkpoint-metric", "ppl")
    assert "begin anew" not in caplog.text


def test_the_best_value_of_an_earlier_training_in_the_process_does_not_count(documents, tmp_path):
    checkpoint_utils.save_checkpoint.best = 0.0
    state = train_on_documents(documents, tmp_path / "run", "--max-epoch", 1)
    assert state["extra_state"]["best"] == state["extra_state"]["val_loss"] > 0

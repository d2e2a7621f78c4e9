"""--best-checkpoint-metric: refused before the first update, or after a save; another one on resuming begins anew."""

import math
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.patches.best_checkpoint import FALLS, GROWS, PACKAGE, check_metric
from fairseq_poolingformer.tasks.summarization.rouge import ROUGE_TYPES
from tests.patches.helpers import num_updates, train, train_on_documents
from tests.patches.test_resuming import PLATEAU

fairseq_poolingformer.register()
OURS = ["--criterion", "linear_cross_entropy"]
MAXIMIZE = "--maximize-best-checkpoint-metric"


def metric(name, *flags):
    return ["--best-checkpoint-metric", name, "--max-epoch", 1, *flags]


class Logging:
    """A task or a criterion of the plugin, by its module, that logs these metrics of a validation."""

    __module__ = f"{PACKAGE}.logging"

    def __init__(self, *names):
        self.logged = names


@pytest.mark.parametrize(
    ("name", "is_maximized", "message"),
    [
        ("rouge2", True, r"rouge2: with these options validation has loss, ppl, span_f1$"),
        ("span_f2", True, r"has loss, ppl, span_f1; did you mean span_f1"),
        ("span_f1", False, "is better the higher it is: add --maximize-best-checkpoint-metric"),
        ("ppl", True, "is better the lower it is: leave out --maximize"),
    ],
)
def test_what_is_wrong_with_a_metric(name, is_maximized, message):
    trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=SimpleNamespace(disable_validation=False)))
    trainer.task, trainer.get_criterion = Logging("span_f1"), lambda: Logging("loss", "ppl")

    def check(name, is_maximized):
        cfg = SimpleNamespace(best_checkpoint_metric=name, maximize_best_checkpoint_metric=is_maximized)
        return check_metric(lambda cfg, trainer: "built", cfg, trainer)

    with pytest.raises(UsageError, match=message):
        check(name, is_maximized)
    assert check("span_f1", True) == check("ppl", False) == "built"


def test_every_metric_that_is_logged_has_a_direction():
    kinds = [*TASK_REGISTRY.values(), *REGISTRIES["criterion"]["registry"].values()]
    logged = [vars(kind).get("logged") for kind in kinds if kind.__module__.startswith(PACKAGE)]
    names = {name for part in logged if isinstance(part, tuple) for name in part}
    names |= {"bleu", "em", "exact_match", *ROUGE_TYPES}
    assert {"span_loss", "bpc", "bits_per_character", "conll_f1", "answered_span_accuracy"} < names
    directions = {name: (bool(GROWS.fullmatch(name)), bool(FALLS.fullmatch(name))) for name in names}
    assert directions.pop("average_span") == (False, False)
    assert {name for name, (grows, falls) in directions.items() if grows == falls} == set()


@pytest.mark.parametrize(
    ("name", "flags", "message"), [("nll_los", OURS, "did you mean nll_loss"), ("rougeLsum", (), "add --maximize")]
)
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
        ) as caught:
            train_on_documents(documents, tmp_path / "run", *flags)
        assert "num_updates" not in str(caught.value)
        assert num_updates(load(tmp_path / "run" / "checkpoint_last.pt")) == 6 * epochs
        checkpoint_utils.save_checkpoint.best = 1.0
    with pytest.raises(UsageError, match=r"other: validation has .*wps$"):
        train_on_documents(documents, tmp_path / "none", *metric("other", "--no-last-checkpoints"))


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

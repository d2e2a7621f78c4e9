"""A training compares itself with the checkpoint that it takes."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from fairseq_poolingformer.patches import CheckpointError
from fairseq_poolingformer.patches.long_jobs.changed_options import check
from tests.patches.helpers import train

MODEL = {"arch": "x", "pooled_layers": "6-11", "window_size": "128", "pool_type": "ldconv", "dropout": 0.1}
COMMAND = {"user_dir": "a", "save_dir": "a", "max_update": 5}


def configuration(model=(), as_namespace=True, **groups):
    model = {**MODEL, **dict(model)}
    groups = {
        "task": {"data": "???", "max_positions": 8},
        "optimization": {"update_freq": [1], "max_update": 5},
        "checkpoint": {"save_dir": "a"},
        **groups,
    }
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


def test_other_changes_are_the_users_own():
    compare(configuration(), configuration({"window_size": "64", "dropout": 0.0}, optimization={"update_freq": [2]}))


def test_the_same_options_and_old_checkpoints_are_taken():
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

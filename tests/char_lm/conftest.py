"""A small text and a checkpoint of a recurrent language model."""

import numpy as np
import pytest
from fairseq import options

from fairseq_poolingformer.cli.models import load_models
from fairseq_poolingformer.weights.files import write_checkpoint
from preprocess.char_lm import make_folder
from tests.char_lm import tiny_char_lm
from tests.lab import ROOT
from tests.recurrent_lm import build

SIZE = 83  # bytes of the test split


@pytest.fixture(scope="package")
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    text = bytes(np.random.default_rng(2).integers(0, 256, 300, dtype=np.uint8))
    (folder / "text").write_bytes(text)
    make_folder([str(folder / "text")], folder, sizes=(157, 60, SIZE))
    return folder


def write(path, model, forgetful):
    """A checkpoint as fairseq saves it."""
    arguments = [
        *("nowhere", "--user-dir", str(ROOT / "tests" / "recurrent_lm"), "--arch", "recurrent_lm", "--cpu"),
        *("--task", "char_lm", "--criterion", "char_lm", "--tokens-per-sample", "7"),
        *(["--forgetful"] if forgetful else []),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    write_checkpoint(path, vars(args), model.state_dict())
    return path


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory):
    """The path of a checkpoint, and its model."""
    model = build()
    return write(tmp_path_factory.mktemp("run") / "model.pt", model, forgetful=False), model


@pytest.fixture(scope="package")
def forgetful_checkpoint(tmp_path_factory):
    """Path and model of a checkpoint without memory."""
    model = build(forgetful=True)
    return write(tmp_path_factory.mktemp("run") / "forgetful.pt", model, forgetful=True), model


@pytest.fixture
def char_lm_checkpoint(tmp_path):
    """Makes a checkpoint of a tiny architecture for blocks of 7 bytes: its path, and its model."""

    def make(arch, *flags):
        args = tiny_char_lm.parse(arch, "--tokens-per-sample", "7", *tiny_char_lm.SMALL, *flags)
        path = tmp_path / f"{arch}.pt"
        write_checkpoint(path, vars(args), tiny_char_lm.build(arch, *flags).state_dict())
        return path, load_models([str(path)], "cpu", "fp32")[0][0]

    return make

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


def write_text(folder, sizes, seed):
    """A data folder of random bytes with these splits."""
    text = np.random.default_rng(seed).integers(0, 256, sum(sizes), dtype=np.uint8)
    (folder / "text").write_bytes(bytes(text))
    make_folder([str(folder / "text")], folder, sizes=sizes)
    return folder


@pytest.fixture(scope="package")
def data_folder(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("data"), (157, 60, SIZE), seed=2)


def parsed(folder, *flags):
    """Options of a training of the recurrent model."""
    model = ("--user-dir", str(ROOT / "tests" / "recurrent_lm"), "--arch", "recurrent_lm", "--cpu")
    words = [str(folder), *model, "--task", "char_lm", "--criterion", "char_lm", *flags]
    return options.parse_args_and_arch(options.get_training_parser(), words)


def write(path, model, *flags):
    """Path and model of a checkpoint as fairseq saves it."""
    write_checkpoint(path, vars(parsed("nowhere", "--tokens-per-sample", "7", *flags)), model.state_dict())
    return path, model


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run") / "model.pt", build())


@pytest.fixture(scope="package")
def forgetful_checkpoint(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run") / "forgetful.pt", build(forgetful=True), "--forgetful")


@pytest.fixture
def char_lm_checkpoint(tmp_path):
    """Makes a checkpoint of a tiny architecture for blocks of 7 bytes: its path, and its model."""

    def make(arch, *flags):
        args = tiny_char_lm.parse(arch, "--tokens-per-sample", "7", *tiny_char_lm.SMALL, *flags)
        path = tmp_path / f"{arch}.pt"
        write_checkpoint(path, vars(args), tiny_char_lm.build(arch, *flags).state_dict())
        return path, load_models([str(path)], "cpu", "fp32")[0][0]

    return make

"""Character language models by the real command lines: training that is resumed in the middle of an epoch, staged."""

import json
import re

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from fairseq_poolingformer.checkpoints import load
from preprocess.char_lm import make_folder
from tests.lab import ROOT, run
from tests.patches.helpers import TORCHRUN
from tests.recurrent_lm import RecurrentLM

assert RecurrentLM  # registered for trainings in this process
WITH_MODEL = "tests.integration.with_recurrent_lm"
TRAINING = [
    *("--task", "char_lm", "--criterion", "char_lm", "--arch", "recurrent_lm", "--dropout", "0.2"),
    *("--tokens-per-sample", 10, "--optimizer", "adam", "--lr", "0.02", "--seed", 5),
    *("--cpu", "--num-workers", 0, "--best-checkpoint-metric", "bpc", "--log-format", "json", "--log-interval", 1),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every eighth byte is mostly the one eight before it, with the same seven between: to be remembered, not seen."""
    folder = tmp_path_factory.mktemp("data")
    rng, text, key = np.random.default_rng(3), b"", 0
    for _ in range(150):
        key = key if rng.random() < 0.9 else rng.integers(4)
        text += b"ABCD"[key : key + 1] + b"efghijk"
    (folder / "text").write_bytes(text)
    make_folder([str(folder / "text")], folder, sizes=(807, 300, 93))
    return folder


def train(folder, save_dir, *flags):
    """Train in this process; the last checkpoint, as it is in the file."""
    from fairseq_cli.train import main

    arguments = [str(word) for word in (folder, *TRAINING, "--save-dir", save_dir, *flags)]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), main)
    return load(save_dir / "checkpoint_last.pt")


def same(first, second):
    return all(torch.equal(tensor, second["model"][name]) for name, tensor in first["model"].items())


CARRIED = ["--require-memory", "--batch-size", 4, "--update-freq", 2, "--rotate-text", "--disable-validation"]


def test_training_resumed_within_an_epoch_is_the_uninterrupted_one(folder, tmp_path):
    """807 bytes in 4 rows are 21 blocks of 10: 11 updates an epoch."""
    whole = train(folder, tmp_path / "whole", *CARRIED, "--max-update", 17)
    for stop in (3, 14):
        train(folder, tmp_path / f"{stop}", *CARRIED, "--max-update", stop)
        resumed = train(folder, tmp_path / f"{stop}", *CARRIED, "--max-update", 17)
        assert same(resumed, whole)


def test_without_its_memory_it_would_be_another(folder, tmp_path):
    whole = train(folder, tmp_path / "whole", *CARRIED, "--max-update", 6)
    stopped = train(folder, tmp_path / "stopped", *CARRIED, "--max-update", 3)
    (memory,) = stopped["extra_state"].pop("CharLMTask")["memories"]
    assert memory["position"] == 60
    assert [tensor.shape for tensor in memory["tensors"]] == [(4, 1, 24)]
    torch.save(stopped, tmp_path / "stopped" / "checkpoint_last.pt")
    assert not same(train(folder, tmp_path / "stopped", *CARRIED, "--max-update", 6), whole)


@pytest.mark.slow
def test_two_workers_resume_with_their_memories(folder, tmp_path):
    """Also equal to one worker with all rows."""
    flags = ["--dropout", 0, "--batch-size", 2, "--disable-validation", "--ddp-backend", "legacy_ddp"]
    command = [*TORCHRUN, "fairseq_cli.train", folder, "--user-dir", ROOT / "tests" / "recurrent_lm", *TRAINING, *flags]
    run(*command, "--save-dir", tmp_path / "two", "--max-update", 3)
    stopped = load(tmp_path / "two" / "checkpoint_last.pt")["extra_state"]["CharLMTask"]["memories"]
    assert [memory["position"] for memory in stopped] == [30, 30]
    assert not torch.equal(stopped[0]["tensors"][0], stopped[1]["tensors"][0])
    run(*command, "--save-dir", tmp_path / "two", "--max-update", 7)
    resumed = load(tmp_path / "two" / "checkpoint_last.pt")
    one = train(folder, tmp_path / "one", *flags, "--batch-size", 4, "--max-update", 7)
    for name, tensor in one["model"].items():
        torch.testing.assert_close(resumed["model"][name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_memory_helps_and_the_commands_agree(folder, tmp_path):
    """Training, validation in it, evaluation by fairseq-validate and by the evaluator, and a sample."""
    user_dir = ["--user-dir", ROOT / "tests" / "recurrent_lm"]
    flags = ["--batch-size", 8, "--batch-size-valid", 1, "--max-epoch", 60, "--validate-interval", 60, "--dropout", 0]
    flags += ["--tokens-per-sample", 20, "--no-epoch-checkpoints"]
    log = run("fairseq_cli.train", folder, *user_dir, *TRAINING, *flags, "--save-dir", tmp_path)
    valid = [json.loads(line[line.index("{") :]) for line in log.splitlines() if "| valid | {" in line]
    checkpoint = tmp_path / "checkpoint_last.pt"
    validate = ["--task", "char_lm", "--valid-subset", "valid", "--batch-size", 1, "--cpu", "--num-workers", 0]
    output = run("fairseq_cli.validate", folder, *user_dir, "--path", checkpoint, *validate)
    bpc = float(re.search(r"bpc ([0-9.]+)", output)[1])
    assert bpc == pytest.approx(float(valid[-1]["valid_bpc"]), abs=2e-3)
    evaluate = [WITH_MODEL, "fairseq_poolingformer.cli.eval_lm", folder, "--path", checkpoint, "--subset", "valid"]
    result = tmp_path / "result.json"
    run(*evaluate, "--device", "cpu", "--output", result)
    assert json.loads(result.read_text())["bpc"] == pytest.approx(bpc, abs=2e-3)
    forgetful = run(*evaluate, "--device", "cpu", "--no-memory", "--context", 6, "--stride", 1, "--output", result)
    assert json.loads(result.read_text())["bpc"] > bpc + 0.05, forgetful
    sample = run(
        WITH_MODEL, "fairseq_poolingformer.cli.sample_lm", "--path", checkpoint, "--length", 50, "--device", "cpu"
    )
    assert len(re.findall("efghijk", sample)) >= 3

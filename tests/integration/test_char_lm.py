"""Character language models by the real command lines: trained with a carried memory, resumed, evaluated, sampled."""

import json
import re
import subprocess

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import eval_lm
from preprocess.char_lm import make_folder
from tests.forked_python import PYTHON, start
from tests.lab import ROOT, characters, run
from tests.patches.helpers import TORCHRUN
from tests.recurrent_lm import RecurrentLM

assert RecurrentLM  # registered for trainings in this process
WITH_MODEL = "tests.integration.with_recurrent_lm"
CHAR_LM = [
    *("--task", "char_lm", "--criterion", "char_lm", "--optimizer", "adam", "--best-checkpoint-metric", "bpc"),
    *("--cpu", "--num-workers", 0, "--log-format", "json"),
]
RECURRENT = [
    *(*CHAR_LM, "--arch", "recurrent_lm", "--dropout", "0.2", "--tokens-per-sample", 10, "--lr", "0.02", "--seed", 5),
    *("--log-interval", 1),
]
MODELS = [
    *(*CHAR_LM, "--tokens-per-sample", 24, "--batch-size", 4, "--lr", "0.003", "--seed", 1, "--no-epoch-checkpoints")
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

    arguments = [str(word) for word in (folder, "--save-dir", save_dir, *flags)]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), main)
    return load(save_dir / "checkpoint_last.pt")


def same(first, second):
    return all(torch.equal(tensor, second["model"][name]) for name, tensor in first["model"].items())


CARRIED = [*RECURRENT, "--require-memory", "--batch-size", 4, "--update-freq", 2, "--rotate-text"]


def test_training_resumed_within_an_epoch_is_the_uninterrupted_one(folder, tmp_path):
    """807 bytes in 4 rows are 21 blocks of 10: 11 updates an epoch."""
    whole = train(folder, tmp_path / "whole", *CARRIED, "--disable-validation", "--max-update", 17)
    for stop in (3, 14):
        train(folder, tmp_path / f"{stop}", *CARRIED, "--disable-validation", "--max-update", stop)
        resumed = train(folder, tmp_path / f"{stop}", *CARRIED, "--disable-validation", "--max-update", 17)
        assert same(resumed, whole)


@pytest.mark.full
def test_two_workers_resume_with_their_memories(folder, tmp_path):
    """Also equal to one worker with all rows."""
    flags = ["--dropout", 0, "--batch-size", 2, "--disable-validation", "--ddp-backend", "legacy_ddp"]
    user_dir = ("--user-dir", ROOT / "tests" / "recurrent_lm")
    command = [*TORCHRUN, "fairseq_cli.train", folder, *user_dir, *RECURRENT, *flags]
    run(*command, "--save-dir", tmp_path / "two", "--max-update", 3)
    stopped = load(tmp_path / "two" / "checkpoint_last.pt")["extra_state"]["CharLMTask"]["memories"]
    assert [memory["position"] for memory in stopped] == [30, 30]
    assert not torch.equal(stopped[0]["tensors"][0], stopped[1]["tensors"][0])
    run(*command, "--save-dir", tmp_path / "two", "--max-update", 7)
    resumed = load(tmp_path / "two" / "checkpoint_last.pt")
    one = train(folder, tmp_path / "one", *RECURRENT, *flags, "--batch-size", 4, "--max-update", 7)
    for name, tensor in one["model"].items():
        torch.testing.assert_close(resumed["model"][name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_memory_helps_and_the_commands_agree(folder, tmp_path):
    """Training, validation in it, evaluation by fairseq-validate and by the evaluator, and a sample."""
    user_dir = ["--user-dir", ROOT / "tests" / "recurrent_lm"]
    flags = ["--batch-size", 8, "--batch-size-valid", 1, "--max-epoch", 60, "--validate-interval", 60, "--dropout", 0]
    flags += ["--tokens-per-sample", 20, "--no-epoch-checkpoints"]
    log = run("fairseq_cli.train", folder, *user_dir, *RECURRENT, *flags, "--save-dir", tmp_path)
    valid = [json.loads(line[line.index("{") :]) for line in log.splitlines() if "| valid | {" in line]
    checkpoint = tmp_path / "checkpoint_last.pt"
    validate = ["--task", "char_lm", "--valid-subset", "valid", "--batch-size", 1, "--cpu", "--num-workers", 0]
    output = run("fairseq_cli.validate", folder, *user_dir, "--path", checkpoint, *validate)
    bpc = float(re.search(r"bpc ([0-9.]+)", output)[1])
    assert bpc == pytest.approx(float(valid[-1]["valid_bpc"]), abs=2e-3)
    words = ["eval-lm", folder, "--path", checkpoint, "--subset", "valid"]
    evaluate = [WITH_MODEL, "fairseq_poolingformer.cli.main", *words]
    result = tmp_path / "result.json"
    run(*evaluate, "--device", "cpu", "--output", result)
    assert json.loads(result.read_text())["bpc"] == pytest.approx(bpc, abs=2e-3)
    forgetful = run(*evaluate, "--device", "cpu", "--no-memory", "--context", 6, "--stride", 1, "--output", result)
    assert json.loads(result.read_text())["bpc"] > bpc + 0.05, forgetful


@pytest.mark.full
@pytest.mark.parametrize("arch", ["transformer_xl_lm", "gaa_lm"])
def test_a_resumed_training_is_the_uninterrupted_one(arch, tmp_path):
    flags = ("--disable-validation",)
    whole = train(characters(), tmp_path / "whole", *MODELS, "--arch", f"{arch}_tiny", *flags, "--max-update", 6)
    train(characters(), tmp_path / "parts", *MODELS, "--arch", f"{arch}_tiny", *flags, "--max-update", 4)
    parts = train(characters(), tmp_path / "parts", *MODELS, "--arch", f"{arch}_tiny", *flags, "--max-update", 6)
    for name, parameter in whole["model"].items():
        assert torch.equal(parts["model"][name], parameter), name


@pytest.mark.parametrize("optimizer", ["adam", "fused_adamw"])
def test_every_validation_is_of_the_model_as_it_is(optimizer, tmp_path):
    """The last of several validations gives the evaluator's number for the checkpoint: 132 bytes in blocks of 12."""
    flags = ("--optimizer", optimizer, "--tokens-per-sample", 12, "--batch-size-valid", 1, "--dropout", 0)
    updates = ("--validate-interval-updates", 2, "--max-update", 6, "--lr", 0.01)
    state = train(characters(), tmp_path, *MODELS, "--arch", "transformer_lm_full_tiny", *flags, *updates)
    checkpoint = str(tmp_path / "checkpoint_last.pt")
    evaluate = [str(characters()), "--path", checkpoint, "--device", "cpu", "--subset", "valid"]
    result = tmp_path / "result.json"
    assert eval_lm.main([*evaluate, "--context", "12", "--stride", "12", "--output", str(result)]) == 0
    assert state["extra_state"]["val_loss"] == pytest.approx(json.loads(result.read_text())["bpc"], abs=1e-3)


@pytest.mark.full
def test_half_precision_trains_spans(tmp_path):
    flags = ("--fp16", "--fp16-init-scale", 4, "--disable-validation", "--span-loss", "1e-9")
    state = train(characters(), tmp_path, *MODELS, "--arch", "gaa_lm_tiny", *flags, "--max-update", 6)["model"]
    assert all(torch.isfinite(parameter).all() for parameter in state.values())
    assert (state["decoder.spans.z.1"] > 0).any()


@pytest.mark.full
@pytest.mark.parametrize("arch", ["adaptive_span_lm", "longformer_lm"])
def test_from_text_to_figures(arch, tmp_path):
    flags = ("--lr", 0.01, "--dropout", 0, "--max-epoch", 6, "--validate-interval", 6)
    train(characters(), tmp_path, *MODELS, "--arch", f"{arch}_tiny", *flags)
    checkpoint = str(tmp_path / "checkpoint_last.pt")
    result = tmp_path / "result.json"
    evaluate = [str(characters()), "--path", checkpoint, "--device", "cpu", "--subset", "valid"]
    assert eval_lm.main([*evaluate, "--output", str(result), "--context", "64", "--stride", "16"]) == 0
    evaluated = json.loads(result.read_text())
    assert evaluated["bpc"] < 1.0
    assert evaluated["memory"] == (arch == "adaptive_span_lm")
    start()
    command = [PYTHON, "run_scripts/char_lm/plot_spans.py", f"mine={checkpoint}", "--output"]
    picture = tmp_path / "spans.png"
    done = subprocess.run([*command, str(picture)], cwd=ROOT, capture_output=True, text=True, check=False)
    if arch == "longformer_lm":
        assert done.returncode == 1
        assert "a model without adaptive spans" in done.stderr
    else:
        assert re.search(r"^mine: average span \d+\.\d$", done.stdout, re.MULTILINE), done.stderr
        assert picture.read_bytes().startswith(b"\x89PNG")

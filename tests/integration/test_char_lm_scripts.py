"""The run script of the character language models: the papers' numbers in a dry run, and stages at tiny size."""

from __future__ import annotations

import json
import shlex
import sys

import numpy as np
import pytest

from fairseq_poolingformer.compat.checkpoints import load

from .conftest import ROOT
from .test_run_scripts import call, options


def trainings(experiment: str, *arguments: str) -> list[dict[str, str]]:
    """The flags of each stage, from a dry run."""
    dry = [f"experiments={experiment}", f"python={sys.executable}", "out=/out", "dry_run=1", "steps=train"]
    output = call("char_lm/run.sh", *dry, *arguments).replace("\\\n", " ")
    return [options(shlex.split(line)) for line in output.splitlines() if "fairseq_cli.train" in line]


def column(stages: list[dict[str, str]], flag: str) -> list[str | None]:
    return [stage.get(flag) for stage in stages]


@pytest.mark.parametrize(
    ("experiment", "ends", "warmups", "layers"),
    [
        ("longformer_enwik8", [430, 480, 530, 565, 570], [10000, 5000, 5000, 3500, 500], 12),
        ("longformer_large", [350, 375, 385, 390, 395], [10000, 2500, 1000, 500, 500], 30),
    ],
)
def test_longformers_stages_are_those_of_its_table_12(experiment, ends, warmups, layers):
    stages = trainings(experiment, "gpus=8")
    assert column(stages, "--tokens-per-sample") == ["2048", "4096", "8192", "16384", "23040"]
    assert column(stages, "--max-update") == [str(end * 1000) for end in ends]
    assert column(stages, "--stage-first-update") == ["0", *(str(end * 1000) for end in ends[:-1])]
    assert column(stages, "--warmup-updates") == [str(warmup) for warmup in warmups]
    assert [float(lr) for lr in column(stages, "--lr")] == [0.00025, 0.000125, 0.0000625, 0.00003125, 0.000015625]
    for number, (stage, batch) in enumerate(zip(stages, (32, 32, 16, 16, 16), strict=True)):
        assert int(stage["--batch-size"]) * 8 * int(stage["--update-freq"]) == batch
        windows = [int(window) for window in stage["--window-size"].split(",")]
        assert len(windows) == layers
        assert (windows[0], windows[-1]) == (32 * 2**number, 512 * 2**number)
        assert windows == sorted(windows)
        constant = {"--optimizer": "fused_adamw", "--clip-norm": "0.25", "--weight-decay": "0.01"}
        constant |= {"--lr-scheduler": "staged", "--dropout": "0.4" if layers == 30 else "0.2"}
        assert {flag: stage[flag] for flag in constant} == constant
        restored = f"/out/{experiment}/stage{number}/checkpoints/checkpoint_last.pt" if number else None
        assert stage.get("--restore-file") == restored
        assert ("--reset-dataloader" in stage) == (number > 0)
        assert "--reset-optimizer" not in stage
        assert "--carry-memory" not in stage


def test_windows_of_the_ablations():
    windows = {
        name: [int(window) for window in trainings(f"window_{name}", "gpus=1")[0]["--window-size"].split(",")]
        for name in ("decreasing", "fixed", "increasing")
    }
    assert windows["decreasing"] == windows["increasing"][::-1]
    assert windows["fixed"] == [230] * 12


def test_models_with_memory_are_trained_in_one_stage():
    (stage,) = trainings("gaa_enwik8", "gpus=8")
    assert "--carry-memory" in stage
    assert "--window-size" not in stage
    assert "--restore-file" not in stage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batch=32"], "batch=32 must have a value for each of 5 stages"),
        (["gpus=3"], "no multiple of 3 processes"),
        (["dry_run=0", "steps=preprocess"], "give raw="),
        (["dry_run=0", "steps=train"], "give data="),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path):
    output = call("char_lm/longformer.sh", "gpus=0", "dry_run=1", f"out={tmp_path}", *arguments, status=1)
    assert message in output


@pytest.mark.slow
def test_stages_go_on_from_one_another(tmp_path):
    """Parameters, the optimizer's state and the number of updates; the learning rate halves."""
    text = np.random.default_rng(0).integers(97, 101, 700, dtype=np.uint8)
    (tmp_path / "text").write_bytes(text.tobytes())
    python = tmp_path / "python"
    with_model = f'exec {sys.executable} -m tests.integration.with_recurrent_lm "$@"'
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\nshift\n{with_model}\n')
    python.chmod(0o755)
    run = ["experiments=gaa_enwik8", f"out={tmp_path}", f"raw={tmp_path}/text", f"python={python}", "gpus=0"]
    run += ["arch=recurrent_lm", "lengths=10,20", "batch=4,2", "device_batch=2,2", "updates=4,3", "warmup=2,1"]
    run += ["lr=0.01", "optimizer=fused_adamw", "num_workers=0", "context=30", "save_updates=100"]
    output = call("char_lm/run.sh", *run, PYTHONPATH=str(ROOT))
    folder = tmp_path / "gaa_enwik8"
    first, second = (load(folder / f"stage{number}" / "checkpoints" / "checkpoint_last.pt") for number in (1, 2))
    for checkpoint, updates, lr in ((first, 4, 0.01), (second, 7, 0.005)):
        assert checkpoint["optimizer_history"][-1]["num_updates"] == updates
        optimizer = checkpoint["last_optimizer_state"]
        assert {int(state["step"]) for state in optimizer["state"].values()} == {updates}
        assert optimizer["param_groups"][0]["lr"] == pytest.approx(lr)
    result = json.loads((folder / "test.json").read_text())
    assert result["scored"] == 35
    name, own, published = output.splitlines()[-1].split()
    assert (name, float(own), published) == ("gaa_enwik8", round(result["bpc"], 4), "0.99")
    again = call("char_lm/run.sh", *run, "steps=train", PYTHONPATH=str(ROOT))
    assert again.count("was finished by an earlier run") == 2

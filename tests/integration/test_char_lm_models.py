"""The character language models by the real command lines: trained with a carried memory, evaluated, sampled, drawn."""

import json
import re
import subprocess

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import eval_lm, sample_lm
from tests.forked_python import PYTHON, start
from tests.lab import ROOT, characters

TRAINING = [
    *("--task", "char_lm", "--criterion", "char_lm", "--tokens-per-sample", 24, "--batch-size", 4, "--cpu"),
    *("--optimizer", "adam", "--lr", "0.003", "--seed", 1, "--num-workers", 0, "--log-format", "json"),
    *("--best-checkpoint-metric", "bpc", "--no-epoch-checkpoints"),
]


def train(save_dir, arch, *flags):
    """Train in this process; the last checkpoint, as it is in the file."""
    from fairseq_cli.train import main

    arguments = [str(word) for word in (characters(), *TRAINING, "--arch", arch, "--save-dir", save_dir, *flags)]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), main)
    return load(save_dir / "checkpoint_last.pt")


@pytest.mark.parametrize("arch", ["transformer_lm_full", "transformer_xl_lm", "longformer_lm", "gaa_lm"])
def test_a_resumed_training_is_the_uninterrupted_one(arch, tmp_path):
    flags = ("--disable-validation",)
    whole = train(tmp_path / "whole", f"{arch}_tiny", *flags, "--max-update", 6)
    train(tmp_path / "parts", f"{arch}_tiny", *flags, "--max-update", 4)
    parts = train(tmp_path / "parts", f"{arch}_tiny", *flags, "--max-update", 6)
    for name, parameter in whole["model"].items():
        assert torch.equal(parts["model"][name], parameter), name


@pytest.mark.parametrize("optimizer", ["adam", "fused_adamw"])
def test_every_validation_is_of_the_model_as_it_is(optimizer, tmp_path):
    """The last of several validations gives the evaluator's number for the checkpoint: 132 bytes in blocks of 12."""
    flags = ("--optimizer", optimizer, "--tokens-per-sample", 12, "--batch-size-valid", 1, "--dropout", 0)
    updates = ("--validate-interval-updates", 2, "--max-update", 6, "--lr", 0.01)
    state = train(tmp_path, "transformer_lm_full_tiny", *flags, *updates)
    checkpoint = str(tmp_path / "checkpoint_last.pt")
    evaluate = [str(characters()), "--path", checkpoint, "--device", "cpu", "--subset", "valid"]
    result = tmp_path / "result.json"
    assert eval_lm.main([*evaluate, "--context", "12", "--stride", "12", "--output", str(result)]) == 0
    assert state["extra_state"]["val_loss"] == pytest.approx(json.loads(result.read_text())["bpc"], abs=1e-3)


def test_half_precision_trains_spans(tmp_path):
    flags = ("--fp16", "--fp16-init-scale", 4, "--disable-validation", "--span-loss", "1e-9")
    state = train(tmp_path, "gaa_lm_tiny", *flags, "--max-update", 6)["model"]
    assert all(torch.isfinite(parameter).all() for parameter in state.values())
    assert (state["decoder.spans.z.1"] > 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["adaptive_span_lm", "longformer_lm"])
def test_from_text_to_figures(arch, tmp_path, capsys):
    flags = ("--lr", 0.01, "--dropout", 0, "--max-epoch", 6, "--validate-interval", 6)
    train(tmp_path, f"{arch}_tiny", *flags)
    checkpoint = str(tmp_path / "checkpoint_last.pt")
    result = tmp_path / "result.json"
    evaluate = [str(characters()), "--path", checkpoint, "--device", "cpu", "--subset", "valid"]
    assert eval_lm.main([*evaluate, "--output", str(result), "--context", "64", "--stride", "16"]) == 0
    evaluated = json.loads(result.read_text())
    assert evaluated["bpc"] < 1.0
    assert evaluated["memory"] == (arch == "adaptive_span_lm")
    capsys.readouterr()
    sample_lm.main(["--path", checkpoint, "--length", "60", "--device", "cpu", "--prompt", "all work", "--top-k", "1"])
    assert "and no play makes jack a dull boy" in capsys.readouterr().out

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


@pytest.mark.parametrize("content", [b"no checkpoint", None])
def test_spans_of_what_is_no_checkpoint(content, tmp_path):
    file = tmp_path / "spans.pt"
    if content is None:
        torch.save([1], file)
    else:
        file.write_bytes(content)
    start()
    command = [PYTHON, "run_scripts/char_lm/plot_spans.py", str(file), "--output", str(tmp_path / "spans.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr

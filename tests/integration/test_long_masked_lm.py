"""Pretraining from plain text by the real command lines: more positions, frozen weights, validation."""

import re

import pytest
import torch

from tests.lab import ROOT, run
from tests.tasks.masked_lm.mlm_folder import random_texts
from tests.text.tiny_gpt2 import write_vocabulary

MODEL = [
    *("--task", "long_masked_lm", "--criterion", "long_masked_lm", "--user-dir", ROOT / "fairseq_poolingformer"),
    *("--encoder-layers", 2, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16, "--encoder-attention-heads", 2),
]
TRAINING = [
    *("--lr", "0.01", "--lr-scheduler", "polynomial_decay", "--power", 3, "--warmup-updates", 1),
    *("--total-num-update", 8, "--weight-decay", 0.5, "--max-tokens", 200, "--num-workers", 0, "--cpu"),
    *("--log-format", "json", "--log-interval", 1, "--no-epoch-checkpoints", "--required-batch-size-multiple", 1),
]
LONG = ["--arch", "poolingformer_roberta_tiny", "--max-positions", 48, "--window-size", 4, "--pooled-layers", 1]
FREEZE = ["--freeze-pretrained", "--pretrained-positions", 20]
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"


def train(data, folder, *flags, updates):
    return run("fairseq_cli.train", data, *MODEL, *TRAINING, *flags, "--save-dir", folder, "--max-update", updates)


def load(folder):
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)


def logged(log, name):
    """The numbers of that name in a log of JSON lines, in order."""
    return [float(number) for number in re.findall(rf'"{name}": "([^"]*)"', log)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    raw, output = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("data") / "data-bin"
    for split, count in (("train", 30), ("valid", 6)):
        text = "\n\n".join(random_texts(count, 40, seed=count))
        (raw / f"{split}.txt").write_text(text + "\n", encoding="utf-8")
    vocabulary = write_vocabulary(tmp_path_factory.mktemp("vocabulary"))
    files = ("--input", raw / "train.txt", "--valid", raw / "valid.txt", "--documents", "block", "--min-chars", 1)
    run("preprocess", "plain_text", *files, "--gpt2-bpe", vocabulary, "--output-folder", output)
    return output


@pytest.fixture(scope="module")
def roberta(data, tmp_path_factory):
    """fairseq's own RoBERTa of 20 positions."""
    folder = tmp_path_factory.mktemp("roberta")
    size = ("--arch", "roberta_base", "--max-positions", 20)
    train(data, folder, *size, "--optimizer", "adam", "--disable-validation", updates=2)
    return folder


@pytest.fixture(scope="module")
def frozen(data, roberta, tmp_path_factory):
    """Its weights frozen in a longer, two-level model: the run's folder and log."""
    folder = tmp_path_factory.mktemp("frozen")
    flags = ("--finetune-from-model", roberta / "checkpoint_last.pt", "--optimizer", "fused_adamw")
    return folder, train(data, folder, *LONG, *FREEZE, *flags, updates=6)


def assert_only_new_is_trained(roberta, folder):
    before, after = load(roberta)["model"], load(folder)["model"]
    rows = before[POSITIONS]
    assert rows.shape == (22, 16)
    copied = torch.cat([rows[:2], rows[2:].repeat(3, 1)])[:50]
    assert torch.equal(after[POSITIONS][:22], rows)
    assert (after[POSITIONS][22:] != copied[22:]).any(1).all()
    for name, value in after.items():
        if name != POSITIONS and "pooled_" not in name:
            assert torch.equal(value, before[name]), name


@pytest.mark.full
def test_the_frozen_variant_trains_new_positions_and_level_two_only(data, roberta, frozen, tmp_path):
    folder, log = frozen
    assert "20 positions -> 48, by repeating them" in log
    assert_only_new_is_trained(roberta, folder)
    flags = ("--finetune-from-model", roberta / "checkpoint_last.pt", "--optimizer", "adam", "--disable-validation")
    train(data, tmp_path, *LONG, *FREEZE, *flags, updates=2)
    assert_only_new_is_trained(roberta, tmp_path)


@pytest.mark.full
def test_validation_gives_what_training_logged(data, frozen):
    folder, log = frozen
    again = run(
        *("fairseq_cli.validate", data, "--user-dir", ROOT / "fairseq_poolingformer", "--task", "long_masked_lm"),
        *("--path", folder / "checkpoint_last.pt", "--max-tokens", 300, "--cpu", "--seed", 9, "--log-format", "json"),
    )
    for name in ("loss", "bits_per_character"):
        assert logged(again, f"valid_{name}")[-1] == pytest.approx(logged(log, f"valid_{name}")[-1], abs=2e-3)
    assert logged(log, "train_bits_per_character")
    characters = logged(log, "valid_loss")[-1] / logged(log, "valid_bits_per_character")[-1]
    assert 1 < characters < 6  # in a token

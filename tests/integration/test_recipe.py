"""run_scripts/recipe.py: both systems learn, a killed run goes on as if it had not been, and what costs are equal."""

import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from run_scripts import recipe

OPTIONS = {"block": 192, "batch": 4, "channels": 32, "layers": 2, "pooled-layers": 1, "window": 8, "pooled-window": 48,
           "steps": 40, "warm-up": 5, "lr": 0.01, "dropout": 0.1, "masked": 0.3, "evaluate-every": 10,
           "evaluation-batches": 2}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Few words, so that a few steps learn them."""
    draw, path = random.Random(0), tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(draw.choices(["the", "river", "runs", "under", "a", "bridge"], k=3000)), encoding="utf-8")
    return path


def run(text, folder, **changes):
    options = OPTIONS | {name.replace("_", "-"): value for name, value in changes.items()}
    return recipe.main([str(text), "--output-folder", str(folder), "--device", "cpu",
                        *(f"--{name}={value}" for name, value in options.items())])  # fmt: skip


@pytest.mark.full
def test_losses_fall_and_a_killed_run_goes_on_with_the_same_numbers(text, tmp_path, monkeypatch, capsys):
    whole = run(text, tmp_path / "whole")
    assert list(whole) == ["two levels", "window 20"]
    for bits in whole.values():
        assert len(bits) == 4
        assert 8 > bits[0] > bits[-1] + 0.3  # 8 before training
    step, calls = recipe.step, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 2 * 27:  # of each system, between two checkpoints
            raise KeyboardInterrupt
        step(*arguments)

    monkeypatch.setattr(recipe, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        run(text, tmp_path / "killed")
    monkeypatch.setattr(recipe, "step", step)
    assert run(text, tmp_path / "killed") == whole
    ends = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("whole", "killed"))
    expected, actual = (end["models"]["two levels"] for end in ends)
    assert all(torch.equal(actual[name], parameter) for name, parameter in expected.items())
    assert "step 40\t" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="made with other settings"):
        run(text, tmp_path / "killed", lr=0.02)
    with pytest.raises(SystemExit, match="give more text"):
        run(text, tmp_path / "long", block=5000)


@pytest.mark.parametrize(("channels", "window", "pooled_window"), [(32, 8, 48), (64, 16, 128)])
def test_windows_of_equal_cost_take_as_many_multiply_adds(channels, window, pooled_window):
    """Products of matrices are counted by torch, pairs that see each other by hand; far from the ends."""
    settings = recipe.Settings(channels=channels, window=window, pooled_window=pooled_window, layers=1, pooled_layers=1)
    costs = []
    for two_levels in (True, False):
        attention = recipe.Model(settings, two_levels).layers[0].attention
        with FlopCounterMode(display=False) as counter:
            x = torch.zeros(1, 2000, channels)
            for module in attention.children():
                module(x)
        keys = 2 * attention.window.left + 1
        keys += 2 * attention.pooled_window.left // settings.pool if two_levels else 0
        costs.append(counter.get_total_flops() / 2 + 2000 * 2 * channels * keys)
    assert costs[0] == pytest.approx(costs[1], rel=0.01)


def test_hidden_words_are_whole_and_the_number_decides_on_a_batch(text):
    settings = recipe.Settings(block=64, batch=3, masked=0.5)
    data, _ = recipe.read([text], 64)
    tokens, original, hidden = recipe.batch(data, settings, 7)
    assert all(map(torch.equal, recipe.batch(data, settings, 7), (tokens, original, hidden)))
    assert not torch.equal(recipe.batch(data, settings, 8)[1], original)
    assert tokens[:, 0].tolist() == [recipe.FIRST] * 3
    assert (tokens[hidden] == recipe.MASK).all()
    assert torch.equal(tokens[~hidden], original[~hidden])
    for row, hides in zip(original[:, 1:], hidden[:, 1:], strict=True):
        for word in "".join(chr(x if not h else ord("?")) for x, h in zip(row.tolist(), hides, strict=True)).split():
            assert set(word) == {"?"} or "?" not in word

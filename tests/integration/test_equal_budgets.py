"""Measurements of a training."""

from __future__ import annotations

import json
import sys

import pytest

from tests.lab import run_script


def test_what_a_command_logs_and_takes_is_kept_if_it_succeeds(tmp_path):
    log = """\
num. shared model params: 12,345 (num. trained: 12,345)
{"epoch": 1, "loss": "3.5", "train_num_updates": "2"}
epoch {one}
{"valid_loss": "3.25", "loss": "3.0"}
"""
    command = f"import pathlib, sys; x = bytearray(300 * 2**20); pathlib.Path(sys.argv[1]).write_text({log!r})"
    arguments = (tmp_path / "result.json", "--log", tmp_path / "log", "--", sys.executable, "-c")
    run_script("equal_budget.py", *arguments, command, tmp_path / "log")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["last_loss"], result["valid_loss"], result["parameters"]) == (3.0, 3.25, 12345)
    assert result["gib"] > 0.3
    assert result["cpu_seconds"] == pytest.approx(2 * result["seconds_per_update"]) != 0
    (tmp_path / "result.json").unlink()
    run_script("equal_budget.py", *arguments, "raise SystemExit(3)", status=3)
    assert not (tmp_path / "result.json").exists()

"""A short round of run_scripts/soak.sh: a training is attacked and ends as if nothing had happened."""

import contextlib
import importlib.util
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.forked_python import PYTHON, start

SCRIPTS = Path(__file__).parents[2] / "run_scripts"
LAST = "checkpoint_last.pt"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SCRIPTS / "soak.py")
    module = sys.modules["soak"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]


def test_a_short_round_of_attacks_is_survived(tmp_path):
    start()
    command = [SCRIPTS / "soak.sh", f"out={tmp_path / 'soak'}", "rounds=3", "updates=4", f"python={PYTHON}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    for attack in ("killed", "killed while saving", "asked to stop", "all"):
        tried = 3 if attack == "all" else 1
        assert re.search(rf"^{attack} +{tried} +{tried}$", done.stdout, re.MULTILINE), done.stdout
    assert ", 1 of them inside a save" in done.stdout


def checkpoint(path, weight=1.0, moment=0.0):
    path.parent.mkdir(exist_ok=True)
    state = {"model": {"w": torch.tensor([weight])}, "last_optimizer_state": {"state": {0: torch.tensor([moment])}}}
    torch.save(state, path)
    return path


def test_a_training_that_ends_in_another_way_is_not_survived(soak, tmp_path, monkeypatch):
    expected = checkpoint(tmp_path / "uninterrupted" / LAST)
    attacked = soak.Soak(tmp_path, 3, random.Random(0), expected)
    monkeypatch.setattr(soak.Soak, "complete", lambda self, save_dir: save_dir / LAST)
    for number, values in enumerate([{"weight": 1.0 + 2**-23}, {"moment": 2.0**-149}]):
        save_dir = checkpoint(tmp_path / f"round{number}" / LAST, **values).parent
        with pytest.raises(soak.NotSurvived, match=("model:", "last_optimizer_state:")[number]):
            soak.survive(attacked, lambda *_: None, save_dir)
    save_dir = checkpoint(tmp_path / "same" / LAST).parent
    Path(f"{save_dir}.out").touch()
    soak.survive(attacked, lambda *_: None, save_dir)
    assert not save_dir.exists()


def test_a_command_that_fails_is_not_survived(soak, tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_cli.train.cli_main", lambda: sys.exit(3))
    with pytest.raises(soak.NotSurvived, match=r"ended with status 3; see .*round\.out"):
        soak.Soak(tmp_path, 3, random.Random(0)).complete(tmp_path / "round")


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
def test_a_mounted_folder_is_full_after_its_size(soak, tmp_path):
    folder = tmp_path / "small"
    try:
        mounted = contextlib.ExitStack()
        mounted.enter_context(soak.mounted(folder, 64 * 1024))
    except OSError as error:
        pytest.skip(str(error))
    with mounted, pytest.raises(OSError, match="No space left"):
        (folder / "file").write_bytes(bytes(2**17))
    assert not (folder / "file").exists()

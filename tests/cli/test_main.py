"""The command of all commands."""

import importlib.metadata
import subprocess
import sys

import pytest

import fairseq_poolingformer
from fairseq_poolingformer.cli.main import COMMANDS, main
from tests.lab import ROOT


def test_help_lists_every_command_and_that_of_one_its_options(capsys):
    assert main(["--help"]) == main([]) == 0
    output = capsys.readouterr().out
    assert all(f"  {name} " in output for name in COMMANDS)
    with pytest.raises(SystemExit) as ended:
        main(["score", "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: poolingformer score")


def test_versions_are_those_installed_and_import_nothing():
    check = "import sys; from fairseq_poolingformer.cli.main import main; main(['--version']); "
    check += "print('torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    lines = output.splitlines()
    assert lines[0] == f"fairseq-poolingformer {fairseq_poolingformer.__version__}"
    assert f"torch {importlib.metadata.version('torch')}" in lines
    assert lines[-1] == "False"


def test_the_folder_for_fairseq(tmp_path, monkeypatch, capsys):
    """From any folder, and beside any installation."""
    monkeypatch.chdir(tmp_path)
    assert main(["user-dir"]) == 0
    assert capsys.readouterr().out == f"{ROOT / 'fairseq_poolingformer'}\n"


def test_an_interrupted_import_ends_without_a_traceback(monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["score"]) == 130

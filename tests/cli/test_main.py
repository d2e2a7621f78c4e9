"""The command of all commands."""

import importlib.metadata
import json
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


HELP = """
import json, sys
from pathlib import Path
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "fairseq", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from fairseq_poolingformer.cli.main import COMMANDS, main
from fairseq_poolingformer.tasks.registry import corpora, tasks
lines = [[name] for name in COMMANDS]
lines += [["convert", name] for name in ("from-short", "to-fairseq", "to-huggingface")]
lines += [["preprocess", name] for name in ("check", *corpora())]
lines += [["score", "--task", name] for name, task in tasks().items() if task.figures]
for name in tasks():  # a task may have options of its own
    (folder := Path(sys.argv[1]) / name).mkdir()
    (folder / "corpus.json").write_text(json.dumps({"kind": name}))
    lines.append(["predict", str(folder)])
for line in lines:
    try:
        status = main([*line, "--help"])
    except SystemExit as end:
        status = end.code
    print("STATUS", json.dumps([line, status]))
"""


def test_help_of_every_command_needs_neither_torch_nor_fairseq(tmp_path):
    """Importing them takes seconds; here they are missing."""
    done = subprocess.run([sys.executable, "-c", HELP, tmp_path], capture_output=True, text=True)
    lines = [json.loads(line.removeprefix("STATUS ")) for line in done.stdout.splitlines() if line[:7] == "STATUS "]
    assert len(lines) >= 30
    assert [(line, status) for line, status in lines if status != 0] == [], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


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

import importlib
import os
import subprocess
import sys

import pytest

from fairseq_poolingformer.tasks.registry import corpora
from preprocess.__main__ import main
from tests.lab import ROOT


@pytest.mark.parametrize("name", corpora())
def test_every_command_has_one_form(name, capsys):
    module = importlib.import_module(f"preprocess.{name}")
    assert module.make_parser().prog == f"poolingformer-preprocess {name}"
    for run, arguments in ((main, [name, "--help"]), (module.main, ["--help"])):
        with pytest.raises(SystemExit) as stopped:
            run(arguments)
        assert stopped.value.code == 0
        assert f"usage: poolingformer-preprocess {name} " in capsys.readouterr().out


def test_the_corpora_are_listed(capsys):
    assert main([]) == main(["--help"]) == 0
    assert "natural_questions  questions about" in capsys.readouterr().out
    assert main(["arxiv"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("poolingformer-preprocess: error: arxiv: no such corpus; did you mean arxiv_pubmed")
    assert main(["xyzzy"]) == 2
    assert "no such corpus; poolingformer-preprocess --help lists them\n" in capsys.readouterr().err


def test_a_clone_has_the_modules_under_the_projects_name_too(tmp_path):
    (tmp_path / "preprocess.py").write_text("1 / 0\n")
    command = [sys.executable, "-m", "fairseq_poolingformer.preprocess", "char_lm", "--help"]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("usage: poolingformer-preprocess char_lm ")
    installed = importlib.import_module("fairseq_poolingformer.preprocess.pipeline.records")
    assert installed.__file__ == importlib.import_module("preprocess.pipeline.records").__file__

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.registry import corpora
from preprocess.__main__ import main
from tests.lab import ROOT


@pytest.mark.parametrize("name", corpora())
def test_every_command_has_one_form(name, capsys):
    module = importlib.import_module(f"preprocess.{name}")
    assert module.make_parser().prog == f"poolingformer preprocess {name}"
    assert "(__name__," in (source := Path(module.__file__).read_text()) or 'if __name__ == "__main__"' in source
    for run, arguments in ((main, [name, "--help"]), (module.main, ["--help"])):
        with pytest.raises(SystemExit) as stopped:
            run(arguments)
        assert stopped.value.code == 0
        assert f"usage: poolingformer preprocess {name} " in capsys.readouterr().out


def test_the_corpora_are_listed(capsys):
    assert main([]) == main(["--help"]) == 0
    assert "natural_questions  questions about" in capsys.readouterr().out
    assert main(["arxiv"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("poolingformer preprocess: error: arxiv: no such corpus; did you mean arxiv_pubmed")
    assert main(["xyzzy"]) == 2
    assert "no such corpus; poolingformer preprocess --help lists them\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["preprocess char_lm", "preprocess.char_lm", "preprocess.imdb"])
def test_a_clone_has_the_modules_under_the_projects_name_too(words, tmp_path):
    (tmp_path / "preprocess.py").write_text("1 / 0\n")
    command = [sys.executable, "-m", *f"fairseq_poolingformer.{words} --help".split()]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"usage: poolingformer preprocess {words[11:]} ")
    installed = importlib.import_module("fairseq_poolingformer.preprocess.pipeline.records")
    assert installed.__file__ == importlib.import_module("preprocess.pipeline.records").__file__

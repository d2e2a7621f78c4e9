"""``poolingformer-preprocess CORPUS``."""

import importlib

import pytest

from preprocess.__main__ import CORPORA, main


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_has_a_command(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"usage: poolingformer-preprocess {name} " in capsys.readouterr().out
    assert callable(importlib.import_module(f"preprocess.{name}").main)


def test_the_corpora_are_listed(capsys):
    assert main([]) == main(["--help"]) == 0
    assert "natural_questions  questions about" in capsys.readouterr().out
    assert main(["arxiv"]) == 2
    assert "error: arxiv: no such corpus" in capsys.readouterr().err


def test_options_reach_the_corpus(release, gpt2_folder, tmp_path):
    options = ["--input-folder", str(release), "--gpt2-bpe", str(gpt2_folder), "--workers", "1"]
    assert main(["arxiv_pubmed", *options, "--output-folder", str(tmp_path / "data")]) == 0
    assert (tmp_path / "data" / "corpus.json").is_file()

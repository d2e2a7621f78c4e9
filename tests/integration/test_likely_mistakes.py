"""Mistakes in fairseq's commands that would cost work or give a wrong result end with a sentence, and no traceback."""

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fairseq_poolingformer
from fairseq_poolingformer.patches.fixes import mistakes
from tests.models import tiny_bart
from tests.tasks.masked_lm import mlm_folder

fairseq_poolingformer.register()

PLUGIN = ["--user-dir", tiny_bart.USER_DIR]
UPDATES = ["--optimizer", "adam", "--lr", "1e-3", "--max-update", 1, "--cpu", "--num-workers", 0]
SUMMARIES = [*PLUGIN, "--task", "long_summarization"]
BART = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--max-target-positions", 12]
LOSS = ["--criterion", "linear_cross_entropy"]
MLM = [*PLUGIN, "--task", "long_masked_lm", "--criterion", "long_masked_lm"]
ROBERTA = ["--arch", "poolingformer_roberta_tiny", "--max-positions", 64]
TRAIN = [*SUMMARIES, *BART, *LOSS, "--batch-size", 2, *UPDATES]


def in_a_process(folder, command, *arguments):
    """Run the command that fairseq installs."""
    words = [Path(sys.executable).parent / f"fairseq-{command}", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def here(command, *arguments):
    """Run a command in this process."""
    module = importlib.import_module(f"fairseq_cli.{command}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"fairseq-{command}", *map(str, arguments)])
        module.cli_main()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Data folders and trained checkpoints."""
    folder = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(0)
    examples = [(rng.integers(4, 30, size).tolist(), [5, 6, 7]) for size in (3, 9, 30, 20)]
    tiny_bart.write_data_folder(folder / "pairs", 30, dict.fromkeys(("train", "valid", "test"), examples))
    mlm_folder.write_folder(folder / "docs", dict.fromkeys(("train", "valid"), mlm_folder.random_texts(4, 30)))
    shutil.copytree(folder / "docs" / "tokenizer", folder / "pairs" / "tokenizer")
    tiny_bart.write_data_folder(folder / "others", 31, {"train": examples})
    (folder / "file").write_text("text\n")
    with contextlib.chdir(folder):
        here("train", "pairs", *TRAIN, "--save-dir", "bart")
        here("train", "docs", *MLM, *ROBERTA, *UPDATES, "--batch-size", 2, "--save-dir", "roberta")
    assert (folder / "roberta" / "checkpoint_last.pt").is_file()
    return folder


BART_PT, ROBERTA_PT = "bart/checkpoint_last.pt", "roberta/checkpoint_last.pt"
GENERATE = [*SUMMARIES, "--cpu", "--path", BART_PT, "--batch-size", 2, "--beam", 2, "--max-len-b", 5]
MISTAKES = {
    "a RoBERTa for BART": (
        ["train", "pairs", *TRAIN, "--finetune-from-model", ROBERTA_PT],
        "holds an encoder alone, and --arch is an encoder with a decoder",
    ),
    "a folder to start from": (
        ["train", "pairs", *TRAIN, "--finetune-from-model", "bart"],
        "bart, is not there or not a file",
    ),
    "no such checkpoint": (["train", "pairs", *TRAIN, "--restore-file", "none.pt"], "none.pt, is not there"),
    "a second folder with other words": (
        ["train", "pairs:others", *TRAIN],
        "than pairs/dict.source",
    ),
    "batches smaller than the longest": (
        ["train", "pairs", *TRAIN, "--max-tokens", 10],
        "3 of 4 examples of train have more than",
    ),
    "two processes without a GPU": (
        ["train", "pairs", *TRAIN, "--distributed-world-size", 2],
        "--distributed-world-size 2 would",
    ),
    "other heads in a resume": (
        ["train", "pairs", *TRAIN, "--max-update", 2, "--encoder-attention-heads", 2, "--save-dir", "bart"],
        "was trained with --encoder-attention-heads 4",
    ),
    "generate: a RoBERTa": (
        ["generate", "pairs", *GENERATE, "--path", ROBERTA_PT],
        "a checkpoint of --task long_masked_lm",
    ),
    "generate: a task forgotten": (
        ["generate", "pairs", *PLUGIN, *GENERATE[4:]],
        "a checkpoint of --task long_summarization",
    ),
    "generate: text": (["generate", "pairs", *GENERATE, "--path", "file"], "file is not a checkpoint"),
    "generate: a shard that is not there": (
        ["generate", "pairs", *GENERATE, "--num-shards", 2, "--shard-id", 2],
        "give one from 0 to 1",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(lab, name, tmp_path, monkeypatch):
    (command, *arguments), word = MISTAKES[name]
    monkeypatch.chdir(lab)
    more = ["--save-dir", tmp_path] if command == "train" and "--save-dir" not in arguments else []
    with pytest.raises(mistakes.FOR_PEOPLE, match=re.escape(word)):
        here(command, *arguments, *more)


@pytest.mark.parametrize("name", ["other heads in a resume", "generate: a shard that is not there"])
def test_the_sentence_is_all_that_is_printed(lab, name):
    command, *arguments = MISTAKES[name][0]
    result = in_a_process(lab, command, *arguments)
    assert result.returncode == 1
    *logged, line = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(re.match(r"(INFO|DEBUG):", entry) for entry in logged)  # logs of fairseq's imports


def test_other_errors_keep_their_traceback(capsys):
    passed = []
    for error in (ValueError("text"), OSError(2, "no such file"), RuntimeError("--lr"), KeyError("x")):
        mistakes.print_one_sentence(lambda *given: passed.append(given), type(error), error, None)
        assert passed.pop() == (type(error), error, None)
    assert capsys.readouterr().err == ""

"""Likely mistakes in the commands of fairseq: each ends with a sentence, not a traceback, and a status other than 0."""

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
from fairseq_poolingformer.patches import CheckpointError
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


def here(command, *arguments, capsys):
    """The sentence with which a command ends in this process; None where it ends otherwise."""
    module = importlib.import_module(f"fairseq_cli.{command}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"fairseq-{command}", *map(str, arguments)])
        try:
            module.cli_main()
        except SystemExit as left:
            said = capsys.readouterr().err.strip()
            return said if left.code == 2 and "\n" not in said else None
        except CheckpointError as error:
            return str(error)
        except Exception as error:
            return mistakes.sentence(error, error.__traceback__)
    return None


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Data folders and trained checkpoints."""
    folder = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(0)
    examples = [(rng.integers(4, 30, size).tolist(), [5, 6, 7]) for size in (3, 9, 30, 20)]
    tiny_bart.write_data_folder(folder / "pairs", 30, dict.fromkeys(("train", "valid", "test"), examples))
    mlm_folder.write_folder(folder / "docs", dict.fromkeys(("train", "valid"), mlm_folder.random_texts(4, 30)))
    shutil.copytree(folder / "docs" / "tokenizer", folder / "pairs" / "tokenizer")
    (folder / "nothing").mkdir()
    (folder / "file").write_text("text\n")
    with contextlib.chdir(folder):
        assert here("train", "pairs", *TRAIN, "--save-dir", "bart", capsys=None) is None
        assert (
            here("train", "docs", *MLM, *ROBERTA, *UPDATES, "--batch-size", 2, "--save-dir", "roberta", capsys=None)
            is None
        )
    assert (folder / "roberta" / "checkpoint_last.pt").is_file()
    return folder


BART_PT, ROBERTA_PT = "bart/checkpoint_last.pt", "roberta/checkpoint_last.pt"
GENERATE = [*SUMMARIES, "--cpu", "--path", BART_PT, "--batch-size", 2, "--beam", 2, "--max-len-b", 5]
MISTAKES = {
    "no such data folder": (["train", "nowhere", *TRAIN], "nowhere"),
    "a folder without a dictionary": (["train", "nothing", *TRAIN], "dict"),
    "an encoder alone for summaries": (["train", "pairs", *TRAIN, "--arch", "poolingformer_roberta_tiny"], "decoder"),
    "a task for another folder": (["train", "docs", *TRAIN], "dict"),
    "a task forgotten": (["train", "pairs", *PLUGIN, *BART, *LOSS, *UPDATES, "--batch-size", 2], "task"),
    "a Hub's name to start from": (
        ["train", "pairs", *TRAIN, "--finetune-from-model", "facebook/bart-large"],
        "finetune",
    ),
    "a RoBERTa for BART": (
        ["train", "pairs", *TRAIN, "--finetune-from-model", ROBERTA_PT],
        "holds an encoder alone, and --arch is an encoder with a decoder",
    ),
    "a folder to start from": (
        ["train", "pairs", *TRAIN, "--finetune-from-model", "bart"],
        "bart, is not there or not a file",
    ),
    "no such checkpoint": (["train", "pairs", *TRAIN, "--restore-file", "none.pt"], "none.pt, is not there"),
    "no batch size": (["train", "pairs", *SUMMARIES, *BART, *LOSS, *UPDATES], "Must specify batch size"),
    "batches smaller than the longest": (
        ["train", "pairs", *TRAIN, "--max-tokens", 10],
        "3 of 4 examples of train have more than",
    ),
    "batch size 0": (["train", "pairs", *TRAIN, "--batch-size", 0], "--batch-size must be 1 or more, got 0"),
    "layers that are not there": (["train", "pairs", *TRAIN, "--pooled-layers", "7"], "--pooled-layers 7"),
    "layers that are no numbers": (["train", "pairs", *TRAIN, "--pooled-layers", "last"], "--pooled-layers must"),
    "a negative window": (["train", "pairs", *TRAIN, "--window-size", "-3"], "--window-size must"),
    "a rate that is no number": (["train", "pairs", *TRAIN, "--lr", "fast"], "argument --lr"),
    "betas that are none": (["train", "pairs", *TRAIN, "--adam-betas", "0.9"], "--adam-betas must"),
    "no optimizer": (
        ["train", "pairs", *SUMMARIES, *BART, *LOSS, "--batch-size", 2, "--max-update", 1, "--cpu"],
        "optimizer is required",
    ),
    "no such optimizer": (["train", "pairs", *TRAIN, "--optimizer", "best"], "--optimizer: invalid choice"),
    "no architecture": (["train", "pairs", *SUMMARIES, *LOSS, "--batch-size", 2, *UPDATES], "give --arch"),
    "heads that do not divide": (["train", "pairs", *TRAIN, "--encoder-attention-heads", 5], "32 and 5"),
    "no such split": (
        ["train", "pairs", *TRAIN, "--train-subset", "training"],
        "no split 'training' (there: test, train, valid)",
    ),
    "no validation split": (
        ["train", "pairs", *TRAIN, "--valid-subset", "dev"],
        "no split 'dev'",
    ),
    "a folder that cannot be made": (["train", "pairs", *TRAIN, "--save-dir", "file/run"], "file/run: Not a directory"),
    "update-freq 0": (["train", "pairs", *TRAIN, "--update-freq", "0"], "--update-freq must"),
    "two processes without a GPU": (
        ["train", "pairs", *TRAIN, "--distributed-world-size", 2],
        "--distributed-world-size 2 would",
    ),
    "documents of no token": (
        ["train", "pairs", *TRAIN, "--max-source-positions", 0],
        "--max-source-positions must be 3",
    ),
    "a metric that is not logged": (
        ["train", "pairs", *TRAIN, "--best-checkpoint-metric", "rouge"],
        "rouge is not logged; these are: bsz, loss",
    ),
    "other heads in a resume": (
        ["train", "pairs", *TRAIN, "--max-update", 2, "--encoder-attention-heads", 2, "--save-dir", "bart"],
        "was trained with --encoder-attention-heads 4",
    ),
    "another criterion in a resume": (
        ["train", "pairs", *TRAIN, "--max-update", 2, "--criterion", "cross_entropy", "--save-dir", "bart"],
        "Criterion does not match",
    ),
    "generate: no path": (["generate", "pairs", *SUMMARIES, "--cpu", "--batch-size", 2], "--path required"),
    "generate: a folder": (
        ["generate", "pairs", *GENERATE, "--path", "bart"],
        "bart: a folder, not a checkpoint; give a file of it: checkpoint_",
    ),
    "generate: a Hub's name": (
        ["generate", "pairs", *GENERATE, "--path", "facebook/bart-large"],
        "no such checkpoint; a model of the Hugging Face Hub",
    ),
    "generate: a RoBERTa": (
        ["generate", "pairs", *GENERATE, "--path", ROBERTA_PT],
        "a checkpoint of --task long_masked_lm",
    ),
    "generate: a task forgotten": (
        ["generate", "pairs", *PLUGIN, *GENERATE[4:]],
        "a checkpoint of --task long_summarization",
    ),
    "generate: no such split": (["generate", "pairs", *GENERATE, "--gen-subset", "dev"], "no split 'dev'"),
    "generate: beam 0": (["generate", "pairs", *GENERATE, "--beam", 0], "--beam must be 1 or more"),
    "generate: at least beyond the decoder": (
        ["generate", "pairs", *GENERATE, "--max-len-b", 100, "--min-len", 50],
        "--min-len 50",
    ),
    "generate: min over max": (["generate", "pairs", *GENERATE, "--min-len", 9], "--min-len 9"),
    "generate: text": (["generate", "pairs", *GENERATE, "--path", "file"], "file is not a checkpoint"),
    "generate: no such language": (["generate", "pairs", *GENERATE, "--source-lang", "en"], "dict.en.txt: not found"),
    "validate: no path": (["validate", "pairs", *SUMMARIES, "--cpu", "--batch-size", 2], "give --path"),
    "validate: no such split": (
        ["validate", "pairs", *SUMMARIES, "--cpu", "--batch-size", 2, "--path", BART_PT, "--valid-subset", "dev"],
        "no split 'dev'",
    ),
    "validate: a folder": (
        ["validate", "pairs", *SUMMARIES, "--cpu", "--batch-size", 2, "--path", "bart"],
        "give a file of it",
    ),
    "interactive: no such input": (
        ["interactive", "pairs", *GENERATE, "--input", "none.txt", "--buffer-size", 2],
        "none.txt: No such file",
    ),
    "interactive: a folder": (
        ["interactive", "pairs", *GENERATE, "--path", "bart", "--input", "file", "--buffer-size", 2],
        "give a file of it",
    ),
    "interactive: small buffer": (
        ["interactive", "pairs", *GENERATE, "--input", "file", "--buffer-size", 1],
        "--buffer-size",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_with_a_sentence(lab, name, tmp_path, monkeypatch, capsys):
    (command, *arguments), word = MISTAKES[name]
    monkeypatch.chdir(lab)
    more = ["--save-dir", tmp_path] if command == "train" and "--save-dir" not in arguments else []
    said = here(command, *arguments, *more, capsys=capsys)
    assert said is not None
    assert word in said


@pytest.mark.parametrize(
    "name",
    ["a task forgotten", "no batch size", "a folder that cannot be made", "generate: min over max", "generate: beam 0"],
)
def test_that_is_all_that_is_printed(lab, name, tmp_path):
    command, *arguments = MISTAKES[name][0]
    result = in_a_process(lab, command, *arguments, *(["--save-dir", tmp_path / "x"] * (name == "no batch size")))
    assert result.returncode == 1
    *logged, line = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(re.match(r"(INFO|DEBUG):", entry) for entry in logged)  # logs of fairseq's imports


@pytest.mark.parametrize(
    "fault",
    [
        "int('x')",
        "a, b = (1,)",
        "{}['x']",
        "assert 3 < 3",
        "open(3.5)",
        "exec('raise ValueError(1)', {'__name__': 'x'})",
    ],
)
def test_a_fault_of_a_program_keeps_its_traceback(fault):
    """Errors of the same types, but not raised for people, or by others."""
    namespace = {"__name__": "fairseq_poolingformer.x"}
    with pytest.raises(Exception) as caught:  # noqa: PT011
        exec(fault, namespace)
    assert mistakes.sentence(caught.value, caught.tb) is None
    with pytest.raises(ValueError, match="for people") as caught:
        exec("raise ValueError('for people')", namespace)
    assert mistakes.sentence(caught.value, caught.tb) == "for people"

"""Mistakes in fairseq's commands that would cost work or give a wrong result end with a sentence, and no traceback."""

import errno
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hydra._internal.utils import run_and_report
from hydra.errors import HydraException
from torch.multiprocessing import ProcessRaisedException, start_processes

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.patches import command_lines
from tests import lab
from tests.models import tiny_bart

fairseq_poolingformer.register()

LOSS = ["--criterion", "linear_cross_entropy"]
TRAIN = [*lab.SUMMARIES, *lab.BART, *LOSS, *lab.UPDATE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Short names of data folders and checkpoints."""
    folder = tmp_path_factory.mktemp("folder")
    for name, source in (("pairs", lab.summaries()), ("texts", lab.texts()), ("bytes", lab.characters())):
        (folder / name).symlink_to(source)
    lab.copy(lab.words(), folder / "others")
    (folder / "file").write_text("text\n")
    for name, examples in (("empty", []), ("beyond", [([5, 9000], [5])])):
        tiny_bart.write_data_folder(lab.copy(lab.summaries(), folder / name), splits={"test": examples})
        lab.copy(lab.summaries() / "dict.source.txt", folder / name)
        lab.copy(lab.summaries() / "dict.target.txt", folder / name)
    for name in ("cut", "unfinished", "unequal"):
        lab.copy(lab.summaries(), folder / name)
    (folder / "cut" / "train.source-target.source.bin").write_bytes(b"12345")
    for kind in ("bin", "idx"):
        lab.copy(
            folder / "unequal" / f"valid.source-target.target.{kind}",
            folder / "unequal" / f"train.source-target.target.{kind}",
        )
    (folder / "unfinished" / "dict.target.txt").unlink()
    (lab.copy(folder / "unfinished", folder / "nested") / "dict.target.txt").mkdir()
    damaged = lab.copy(lab.summaries(), folder / "damaged") / "tokenizer" / "encoder.json"
    damaged.write_bytes(damaged.read_bytes()[:99])
    lab.copy(lab.bart().parent, folder / "bart")
    lab.copy(lab.roberta().parent, folder / "roberta")
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text("{}")
    return folder


BART_PT, ROBERTA_PT = "bart/checkpoint_last.pt", "roberta/checkpoint_last.pt"
GENERATE = [*lab.SUMMARIES, "--cpu", "--path", BART_PT, "--batch-size", 2, "--beam", 2, "--max-len-b", 5]
TRAIN_PAIRS, GENERATE_PAIRS = ["train", "pairs", *TRAIN], ["generate", "pairs", *GENERATE]
HEADS = ["--max-update", 2, "--encoder-attention-heads", 2, "--save-dir", "bart"]  # another number of them in a resume
LONGER = ["--max-update", 2, "--max-source-positions", 100, "--save-dir", "bart"]  # with fairseq's Adam
MISTAKES = {  # a part of the sentence -> the command
    "an encoder alone, and --arch is an encoder with": [*TRAIN_PAIRS, "--finetune-from-model", ROBERTA_PT],
    "poolingformer_roberta_tiny is an encoder alone, and this task trains an encoder with a decoder: give": [
        *("train", "pairs", *lab.SUMMARIES, *lab.ROBERTA[:2], *lab.SMALL, *LOSS, *lab.UPDATE)
    ],
    "poolingformer_bart_tiny is an encoder with a decoder, and this task trains an encoder alone: give": [
        *("train", "texts", *lab.TEXTS, *lab.BART, *lab.UPDATE)
    ],
    "is an encoder alone, and this task trains a decoder alone: give one such as --arch longformer_lm_small": [
        *("train", "bytes", "--task", "char_lm", *lab.PLUGIN, *lab.ROBERTA, "--criterion", "char_lm", *lab.UPDATE)
    ],
    "than pairs/dict.source": ["train", "pairs:others", *TRAIN],  # a second folder with other words
    "5 of 6 examples of train have more than": [*TRAIN_PAIRS, "--max-tokens", 10],
    "train.source-target.source.bin has 6 documents, and beside it are 2 summaries": ["train", "unequal", *TRAIN],
    "has 11 tokens, more than --max-tokens 10 (in": [*TRAIN_PAIRS, "--max-tokens-valid", 10],
    "more than --max-tokens 9 (in": [*GENERATE_PAIRS, "--max-tokens", 9],
    "--encoder-layers-to-keep: these models keep": [*TRAIN_PAIRS, "--encoder-layers-to-keep", "0,1"],
    "--decoder-layers-to-keep: these models keep": [*TRAIN_PAIRS, "--decoder-layers-to-keep", "0"],
    "as encoder.embed_positions.weight, and this model (102, 32)": [*TRAIN_PAIRS, *LONGER],
    "damaged/tokenizer cannot be opened (": ["train", "damaged", *TRAIN],
    "--distributed-world-size 2 would": [*TRAIN_PAIRS, "--distributed-world-size", 2],  # without a GPU
    "was trained with --encoder-attention-heads 4": [*TRAIN_PAIRS, *HEADS],
    "a checkpoint of --task long_masked_lm": [*GENERATE_PAIRS, "--path", ROBERTA_PT],
    "a checkpoint of --task long_summarization": ["generate", "pairs", *lab.PLUGIN, *GENERATE[4:]],
    "file is not a checkpoint": [*GENERATE_PAIRS, "--path", "file"],
    "--gen-subset test: the split has no example": ["generate", "empty", *GENERATE],
    "source.bin: has the token 9000, and": ["generate", "beyond", *GENERATE],
    "give one from 0 to 1": [*GENERATE_PAIRS, "--num-shards", 2, "--shard-id", 2],
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_is_named(folder, sentence, tmp_path, monkeypatch):
    command, *arguments = MISTAKES[sentence]
    monkeypatch.chdir(folder)
    more = ["--save-dir", tmp_path] if command == "train" and "--save-dir" not in arguments else []
    with pytest.raises(command_lines.FOR_PEOPLE, match=re.escape(sentence)):
        lab.here(f"fairseq_cli.{command}", *arguments, *more)


SENTENCES = {  # plain ValueErrors of the plugin, files that are missing, and options that fairseq and torch refuse
    "no folder": (["nowhere", *TRAIN], "nowhere: no such folder"),
    "no positions": (["pairs", *TRAIN, "--max-source-positions", 0], "--max-source-positions 0 has no room"),
    "wide pools": (["pairs", *TRAIN, "--pool-merge", "softmax", "--pool-kernel-size", 5], "give --pool-kernel-size 4"),
    "transformers": (["pairs", *TRAIN, "--finetune-from-model", "hf"], "convert to-fairseq hf NEW, and give"),
    "no dictionary of summaries": (["unfinished", *TRAIN], "unfinished/dict.target.txt: No such file"),
    "a folder for a dictionary": (["nested", *TRAIN], "nested/dict.target.txt: not a file; take the dictionary"),
    "a cut split": (["cut", *TRAIN], "cut/train.source-target.source.bin: has 5 bytes where its index says"),
    "a layer too many": (["pairs", *TRAIN, "--pooled-layers", 9], "--pooled-layers 9 names layer 9"),
    "no layers": (["pairs", *TRAIN, "--encoder-layers", 0], "but the encoder has layers 0 to -1"),
    "no stride": (["pairs", *TRAIN, "--pool-stride", 0], "stride must be an integer >= 1, got 0"),
    "dropout": (["pairs", *TRAIN, "--dropout", 2], "dropout probability has to be between 0 and 1, but got 2.0"),
    "heads": (["pairs", *TRAIN, "--decoder-attention-heads", 3], "embed_dim must be divisible by num_heads"),
    "no steps": (["pairs", *TRAIN, "--lr-scheduler", "polynomial_decay"], "lr_scheduler.total_num_update=null"),
    "no model": (["pairs", *TRAIN, "--finetune-from-model", "none.pt"], "-model none.pt does not exist"),
    "workers": (["pairs", *TRAIN, "--num-workers", -1], "num_workers option should be non-negative"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_errors_of_data_folders_and_options_are_their_sentence(folder, name, tmp_path, monkeypatch, capsys):
    arguments, word = SENTENCES[name]
    monkeypatch.chdir(folder)
    with pytest.raises((ValueError, OSError, AssertionError, HydraException)) as caught:
        lab.here("fairseq_cli.train", *arguments, "--save-dir", tmp_path)
    capsys.readouterr()
    command_lines.print_reason_last(None, caught.type, caught.value, caught.tb)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert word in line


SLIP = ["--arch", "poolingformer_bart_bas"]
UNKNOWN = {
    "--decoder-layers belongs to --arch poolingformer_bart_large: give that one": [
        *("train", "pairs", *lab.SUMMARIES, *lab.ROBERTA[:2], *lab.SMALL, *LOSS, "--decoder-layers", 2)
    ],
    "--max-source-positions belongs to --arch poolingformer_bart_large and to --task long_summarization: give": [
        *("train", "bytes", "--task", "char_lm", *lab.PLUGIN, "--arch", "gaa_lm_tiny", "--criterion", "char_lm"),
        *(*lab.UPDATE, "--max-source-positions", 9),
    ],
    "--mask-prob belongs to --task long_masked_lm: give that": [*TRAIN_PAIRS, "--mask-prob", 0.1],
    "--total-num-update belongs to --lr-scheduler polynomial_decay": [*TRAIN_PAIRS, "--total-num-update", 9],
    "--pooled-layer 1; did you mean --pooled-layers": [*TRAIN_PAIRS, "--pooled-layer", 1],
    "invalid choice: 'poolingformer_bart_bas'; did you mean poolingformer_bart_base": [*TRAIN_PAIRS, *SLIP],
    "argument --window-size: expected one argument\n": [*TRAIN_PAIRS, "--window-size"],  # which this --arch has
    "--beams 2; did you mean --beam": [*GENERATE_PAIRS, "--beams", 2],
}


@pytest.mark.parametrize("sentence", UNKNOWN)
def test_unknown_flags_are_one_line(folder, sentence, monkeypatch, capsys):
    command, *arguments = UNKNOWN[sentence]
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        lab.here(f"fairseq_cli.{command}", *arguments)
    assert ended.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines(keepends=True) if " error: " in line]
    assert sentence in line


def test_the_sentence_is_all_that_is_printed(folder):
    command, *arguments = MISTAKES["was trained with --encoder-attention-heads 4"]
    words = [Path(sys.executable).parent / f"fairseq-{command}", *map(str, arguments)]  # as fairseq installs it
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    *logged, line = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(re.match(r"(INFO|DEBUG):", entry) for entry in logged)  # logs of fairseq's imports


@pytest.mark.parametrize("kind", [FileNotFoundError, IsADirectoryError, PermissionError])
def test_files_that_cannot_be_read_are_named(capsys, kind):
    with pytest.raises(kind) as caught:  # within the plugin
        exec(compile("raise kind(1, 'Not so', 'file')", str(command_lines.PACKAGE / "file.py"), "exec"), {"kind": kind})
    command_lines.print_reason_last(None, caught.type, caught.value, caught.tb)
    assert capsys.readouterr().err == "error: file: Not so\n"


def wrapped(error, *, context=True):
    """An error as fairseq raises it where it meets another one."""
    try:
        try:
            raise error
        except Exception as reason:
            if context:
                raise Exception("please ensure that the architectures match")  # noqa: B904
            raise Exception("please ensure that the architectures match") from reason
    except Exception as outer:
        return outer


SENTENCE = "x.pt has (3, 2), and this model (4, 2)"
REASONS = {
    SENTENCE: [wrapped(UsageError(SENTENCE)), wrapped(CheckpointError(SENTENCE), context=False)],
    "full/x.pt: No space left on device": [
        OSError(errno.ENOSPC, "No space left on device", "full/x.pt"),
        wrapped(OSError(errno.ENOSPC, "No space left on device", "full/x.pt")),
    ],
}


@pytest.mark.parametrize(("sentence", "error"), [(text, error) for text, errors in REASONS.items() for error in errors])
def test_the_last_line_is_the_reason(capsys, sentence, error):
    """Below the traceback, by Python's hook; below hydra's."""
    command_lines.print_reason_last(sys.excepthook.__wrapped__, type(error), error, error.__traceback__)
    *above, last = capsys.readouterr().err.splitlines()
    assert any(type(error).__name__ in line for line in above)
    assert last == f"error: {sentence}"

    def fail():
        raise error

    with pytest.raises(SystemExit) as ended:
        run_and_report(fail)
    *above, last = capsys.readouterr().err.splitlines()
    assert (ended.value.code, last) == (1, f"error: {sentence}")
    assert any(type(error).__name__ in line for line in above)


def fail_wrapped(rank, reason):
    raise wrapped(reason)


def test_the_last_line_is_the_reason_in_a_process_that_is_started(capsys):
    """fairseq-train starts one a GPU by torch's spawn, whose traceback the first process prints, or hydra."""
    with pytest.raises(ProcessRaisedException) as caught:
        start_processes(fail_wrapped, (UsageError(SENTENCE),), start_method="fork")
    command_lines.print_reason_last(sys.excepthook.__wrapped__, caught.type, caught.value, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"error: {SENTENCE}"
    assert lines.count(lines[-1]) == 1
    with pytest.raises(SystemExit):
        run_and_report(partial(fail_wrapped, 0, caught.value))
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {SENTENCE}"
    with pytest.raises(ProcessRaisedException, match=r"architectures match\n$"):
        start_processes(fail_wrapped, (KeyError("x"),), start_method="fork")


def test_other_errors_keep_their_traceback(capsys):
    passed = []
    with pytest.raises(ValueError, match="invalid literal") as caught:  # Python's own error, within the plugin
        exec(compile("int('x')", str(command_lines.PACKAGE / "file.py"), "exec"))
    command_lines.print_reason_last(lambda *arguments: passed.append(arguments), caught.type, caught.value, caught.tb)
    assert passed.pop()[0] is ValueError
    interrupted = KeyboardInterrupt()
    interrupted.__context__ = UsageError("text")
    others = (ValueError("text"), OSError(2, "no such file"), RuntimeError("--lr"), KeyError("x"), interrupted)
    try:
        raise KeyError("x") from None
    except KeyError as error:
        error.__context__ = UsageError("text")
        others = (*others, error)
    for error in others:
        command_lines.print_reason_last(lambda *arguments: passed.append(arguments), type(error), error, None)
        assert passed.pop() == (type(error), error, None)
    assert capsys.readouterr().err == ""

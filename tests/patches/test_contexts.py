"""``--context-parallel-size``: processes that share batches train as one that has each batch alone."""

import functools
import importlib
import os
import signal

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import processes
from tests.models.tiny_bart import USER_DIR
from tests.patches.helpers import TRAINING, in_processes, parse
from tests.tasks.masked_lm.mlm_folder import random_texts
from tests.tasks.masked_lm.mlm_folder import write_folder as write_texts
from tests.tasks.question_answering.folders import random_examples
from tests.tasks.question_answering.folders import write_folder as write_questions

COMMON = [
    *(
        "--user-dir",
        USER_DIR,
        "--cpu",
        "--num-workers",
        0,
        "--no-epoch-checkpoints",
        "--optimizer",
        "adam",
        "--adam-eps",
        1e-4,
    ),
    *("--lr", 1e-3, "--clip-norm", 1, "--required-batch-size-multiple", 1, "--no-progress-bar", "--seed", 5),
    *("--encoder-layers", 2, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 24, "--encoder-attention-heads", 2),
    *("--window-size", 3, "--pooled-window-size", 8, "--pooled-layers", 1, "--max-positions", 48, "--batch-size", 4),
    *("--dropout", 0, "--attention-dropout", 0, "--arch", "poolingformer_roberta_tiny"),
]
TASKS = {
    "long_masked_lm": ["--task", "long_masked_lm", "--criterion", "long_masked_lm"],
    "masked_lm": ["--task", "long_masked_lm", "--criterion", "masked_lm"],
    "question_answering": [
        *("--task", "question_answering", "--criterion", "question_answering", "--negative-share", 1),
        *("--doc-stride", 12, "--max-question-length", 8),
    ],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports in this process what takes each of its copies 2 s
    texts = tmp_path_factory.mktemp("texts")
    write_texts(texts, {"train": random_texts(30, 40, seed=1), "valid": random_texts(5, 40, seed=2)})
    examples = {"train": random_examples(24, seed=1), "valid": random_examples(6, seed=2)}
    questions = write_questions(tmp_path_factory.mktemp("questions"), examples)
    return {"long_masked_lm": texts, "masked_lm": texts, "question_answering": questions}


def recording(records):
    """Have trainers append what all processes counted together of each update and validation."""
    before = Trainer._reduce_and_log_stats

    def reduce(self, logging_outputs, sample_size, grad_norm=None):
        sums = {name: sum(float(log[name]) for log in logging_outputs) for name in logging_outputs[0]}
        records.append({**sums, "sample": float(sample_size), "norm": float(-1 if grad_norm is None else grad_norm)})
        return before(self, logging_outputs, sample_size, grad_norm)

    Trainer._reduce_and_log_stats = reduce


def training(folders, task, save_dir, updates, *flags, **how):
    """:func:`recorded` training of a task."""
    words = [folders[task], *COMMON, *TASKS[task], "--save-dir", save_dir, "--max-update", updates, *flags]
    return recorded(words, save_dir, **how)


def recorded(words, save_dir, processes=1, size=1, act=None):
    """What each process does: it trains, and the first one writes its records.

    ``act`` is a signal that the last process sends to itself before its fourth update.
    """
    from fairseq_cli.train import main

    def process(rank, meeting):
        records = []
        recording(records)
        if act is not None and rank == processes - 1:
            Trainer.zero_grad = acting(act)
        arguments = [*words, "--context-parallel-size", size, "--distributed-world-size", processes]
        if processes > 1:
            arguments += ["--distributed-rank", rank, "--distributed-no-spawn", "--distributed-init-method", meeting]
        distributed_utils.call_main(parse(options.get_training_parser(), arguments), main)
        if rank == 0:
            torch.save(records, save_dir / "records.pt")

    return process


def acting(act):
    before = Trainer.zero_grad

    def zero_grad(self):
        if self.get_num_updates() == 3:
            os.kill(os.getpid(), act)
        before(self)

    return zero_grad


def train(folders, task, save_dir, *arguments, processes=1, size=1):
    """Train in processes; returns the records of the first, and the last checkpoint."""
    in_processes(processes, training(folders, task, save_dir, *arguments, processes=processes, size=size))
    return torch.load(save_dir / "records.pt"), load(save_dir / "checkpoint_last.pt")


def merged(records):
    """The records, one for each validation."""
    found = []
    for record in records:
        if found and record["norm"] == found[-1]["norm"] == -1:
            found[-1] = {name: found[-1][name] + value for name, value in record.items()} | {"norm": -1}
        else:
            found.append(record)
    return found


def assert_same(one, other, rtol=1e-5):
    """Check two trainings' records and parameters."""
    (records, state), (others, other_state) = one, other
    records, others = merged(records), merged(others)
    assert len(records) == len(others)
    for update, (a, b) in enumerate(zip(records, others, strict=True)):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(b[name], a[name], rtol, atol=1e-6, err_msg=f"{name} of record {update}")
    for name, tensor in state["model"].items():
        torch.testing.assert_close(other_state["model"][name], tensor, rtol=1e-3, atol=2e-5, msg=name)


@pytest.mark.parametrize("task", ["long_masked_lm", "question_answering"])
def test_two_processes_train_as_one(folders, tmp_path, task):
    one = train(folders, task, tmp_path / "one", 10)
    assert_same(one, train(folders, task, tmp_path / "two", 10, processes=2, size=2))


@pytest.mark.parametrize(
    ("task", "flags"),
    [
        ("long_masked_lm", ["--ddp-backend", "legacy_ddp", "--store-ema"]),
        ("masked_lm", ["--checkpoint-activations"]),
    ],
)
def test_two_groups_divide_the_batches_of_one_process(folders, tmp_path, task, flags):
    one = train(folders, task, tmp_path / "one", 2, "--update-freq", 4)
    assert_same(one, train(folders, task, tmp_path / "four", 2, "--update-freq", 2, *flags, processes=4, size=2))


def test_checkpoints_go_on_with_another_size(folders, tmp_path):
    task, flags = "long_masked_lm", ["--disable-validation"]
    one = train(folders, task, tmp_path / "one", 12, *flags)
    records = []
    for size, updates in ((2, 7), (1, 9), (3, 12)):  # an epoch has eight
        more, state = train(folders, task, tmp_path / "other", updates, *flags, processes=size, size=size)
        records += more
    assert_same(one, (records, state))


def test_dropout_and_offsets_do_not_depend_on_the_size(folders, tmp_path):
    flags = ["--dropout", 0.1, "--attention-dropout", 0.1, "--activation-dropout", 0.1, "--random-position-offsets"]
    run = functools.partial(train, folders, "long_masked_lm")
    two, three = (run(tmp_path / f"{size}", 3, *flags, processes=size, size=size) for size in (2, 3))
    assert_same(two, three)


def test_half_precision(folders, tmp_path):
    run = functools.partial(train, folders, "long_masked_lm")
    exact, _ = run(tmp_path / "exact", 2)
    for flag in ("--bf16", "--fp16"):
        rounded, _ = run(tmp_path / flag, 2, flag, processes=2, size=2)
        for one, other in zip(merged(exact), merged(rounded), strict=True):
            assert other["loss"] == pytest.approx(one["loss"], rel=0.02)


def test_a_killed_training_goes_on_bit_for_bit(folders, tmp_path):
    flags = ["--dropout", 0.1, "--attention-dropout", 0.1, "--disable-validation", "--save-interval-updates", 2]
    arguments, two = (folders, "long_masked_lm"), {"processes": 2, "size": 2}
    run = functools.partial(train, *arguments, **two)
    straight, expected = run(tmp_path / "straight", 5, *flags)
    with pytest.raises(AssertionError):  # the other one ends, too
        in_processes(2, training(*arguments, tmp_path / "killed", 5, *flags, **two, act=signal.SIGKILL))
    resumed, state = run(tmp_path / "killed", 5, *flags)
    assert resumed == straight[2:]
    for name, tensor in expected["model"].items():
        assert torch.equal(state["model"][name], tensor), name


def test_a_full_memory_ends_all_that_share_the_batch(folders, tmp_path):
    flags = ["--disable-validation"]
    run = training(folders, "long_masked_lm", tmp_path, 3, *flags, processes=2, size=2)

    def fill(*arguments, **named):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def process(rank, meeting):
        FairseqTask.train_step = fill if rank else FairseqTask.train_step
        try:
            run(rank, meeting)
        except RuntimeError as error:
            (tmp_path / f"error{rank}").write_text(str(error))
            raise

    with pytest.raises(AssertionError):
        in_processes(2, process)
    assert (tmp_path / "error1").read_text() == "CUDA out of memory"
    assert "rank 1" in (tmp_path / "error0").read_text()


@pytest.mark.parametrize("command", ["validate", "interactive"])
def test_commands_that_divide_nothing_say_so(command):
    module = importlib.import_module(f"fairseq_cli.{command}")
    parser = {"validate": options.get_validation_parser, "interactive": options.get_interactive_generation_parser}
    task = ["data", "--task", "long_masked_lm", "--user-dir", USER_DIR, "--path", "none.pt", "--batch-size", 1]
    with pytest.raises(ValueError, match="--context-parallel-size is an option of fairseq-train and fairseq-generate"):
        module.main(parse(parser[command](), [*task, "--context-parallel-size", 2]))


@pytest.mark.parametrize(
    ("flags", "world_size", "message"),
    [
        ([], 3, "--context-parallel-size 2 divides 3 processes into no whole number of groups"),
        ([], 1, "--context-parallel-size 2 divides 1 process into no whole number of groups"),
        (["--ddp-backend", "slowmo"], 2, "does not go with --ddp-backend slowmo"),
        (["--use-bmuf"], 2, "does not go with --use-bmuf"),
    ],
)
def test_what_does_not_go_with_divided_documents_is_refused(flags, world_size, message):
    cfg = parse(options.get_training_parser(), ["data", *TRAINING, *flags])
    cfg.distributed_training.distributed_world_size = world_size
    with pytest.raises(ValueError, match=message):
        processes.check(cfg, 2)

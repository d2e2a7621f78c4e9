"""``--context-parallel-size``: processes that share batches train as one that has each batch alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_poolingformer.checkpoint_reader.checkpoints import load
from fairseq_poolingformer.patches.distribution import contexts
from tests.models.tiny_bart import USER_DIR
from tests.patches.helpers import TRAINING, in_processes, parse
from tests.tasks.masked_lm.mlm_folder import random_texts
from tests.tasks.masked_lm.mlm_folder import write_folder as write_texts
from tests.tasks.question_answering.folders import random_examples
from tests.tasks.question_answering.folders import write_folder as write_questions

COMMON = [
    *("--user-dir", USER_DIR, "--cpu", "--num-workers", 0, "--no-epoch-checkpoints", "--optimizer", "adam"),
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


def train(folders, task, save_dir, updates, *flags, processes=1, size=1):
    """Train in processes; returns the records of the first, and the last checkpoint."""
    from fairseq_cli.train import main

    def process(rank, meeting):
        records = []
        recording(records)
        arguments = [folders[task], *COMMON, *TASKS[task], "--save-dir", save_dir, "--max-update", updates, *flags]
        arguments += ["--context-parallel-size", size, "--distributed-world-size", processes]
        if processes > 1:
            arguments += ["--distributed-rank", rank, "--distributed-no-spawn", "--distributed-init-method", meeting]
        distributed_utils.call_main(parse(options.get_training_parser(), arguments), main)
        if rank == 0:
            torch.save(records, save_dir / "records.pt")

    in_processes(processes, process)
    return torch.load(save_dir / "records.pt"), load(save_dir / "checkpoint_last.pt")


def assert_same(one, other, rtol=1e-5):
    (records, state), (others, other_state) = one, other
    assert len(records) == len(others)
    for update, (a, b) in enumerate(zip(records, others, strict=True)):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(b[name], a[name], rtol, atol=1e-6, err_msg=f"{name} of record {update}")
    for name, tensor in state["model"].items():
        torch.testing.assert_close(other_state["model"][name], tensor, rtol=1e-3, atol=2e-5, msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_two_processes_train_as_one(folders, tmp_path, task):
    one = train(folders, task, tmp_path / "one", 20)
    assert_same(one, train(folders, task, tmp_path / "two", 20, processes=2, size=2))

"""Several processes: torchrun, training on CPUs, and those that read batches."""

import gc
import multiprocessing
import time
import weakref
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.data import LanguagePairDataset
from fairseq.data.iterators import CountingIterator
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_poolingformer.checkpoints import load
from tests.patches.helpers import PACKAGE, TORCHRUN, TRAINING, assert_same_parameters, num_updates, parse, run, train


@pytest.mark.full
def test_torchrun_is_one_training_that_resumes(corpus, tmp_path):
    """Two processes make the updates of one process with twice the update frequency, and so when resumed."""
    arguments = [corpus, *TRAINING, "--user-dir", PACKAGE, "--save-dir", tmp_path / "two"]
    started = run(*TORCHRUN, "fairseq_cli.train", *arguments, "--max-update", 2, cwd=tmp_path)
    assert started.stdout.count("training on 2 devices") == 1  # the second process logs warnings only
    assert "(epoch 1 @ 2 updates" in started.stdout
    alone = train(corpus, tmp_path / "one", "--max-update", 2, "--update-freq", 2)
    assert_same_parameters(load(tmp_path / "two" / "checkpoint_last.pt"), alone)

    arguments += ["--max-update", 4, "--ddp-backend", "legacy_ddp"]
    resumed = run(*TORCHRUN, "tests.patches.resume_and_gather", *arguments, cwd=PACKAGE.parent)
    for line in ("Loaded checkpoint", "gathered on 0", "gathered on 1"):
        assert line in resumed.stdout + resumed.stderr
    alone = train(corpus, tmp_path / "one", "--max-update", 4, "--update-freq", 2)
    two = load(tmp_path / "two" / "checkpoint_last.pt")
    assert num_updates(two) == 4
    assert_same_parameters(two, alone)


@pytest.fixture
def started(monkeypatch):
    """Call ``call_main`` without starting anything; returns the distributed options as ``main`` would get them."""

    def start(*arguments: str, patched: bool = True, path: str | None = None):
        cfg = parse(options.get_training_parser(), ["data", *TRAINING, *arguments])
        cfg.common_eval.path = path
        configurations = []
        monkeypatch.setattr(distributed_utils, "distributed_main", lambda i, main, cfg, _: configurations.append(cfg))
        call_main = distributed_utils.call_main if patched else distributed_utils.call_main.__wrapped__
        call_main(cfg, configurations.append)
        (cfg,) = configurations
        return cfg.distributed_training

    return start


@pytest.fixture
def torchrun(monkeypatch):
    variables = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_torchrun_environment_is_read(started, torchrun):
    distributed = started()
    assert (distributed.distributed_world_size, distributed.distributed_rank, distributed.device_id) == (2, 1, 0)
    assert (distributed.distributed_init_method, distributed.distributed_backend) == ("env://", "gloo")
    assert distributed.distributed_no_spawn
    for path in (None, "a.pt"):  # a world size that is given as well is no matter
        assert started("--distributed-world-size", "2", path=path).distributed_world_size == 2


def test_evaluation_is_left_as_it_was(started, torchrun):
    alone = started(path="a.pt", patched=False).distributed_world_size
    assert started(path="a.pt").distributed_world_size == alone


def test_no_launcher_is_one_process(started):
    distributed = started()
    assert (distributed.distributed_world_size, distributed.distributed_init_method) == (1, None)


def test_gpus_are_told_apart_by_local_rank(started, torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    cfg = parse(options.get_training_parser(), ["data", *TRAINING])
    cfg.common.cpu = False
    devices = []
    monkeypatch.setattr(distributed_utils, "distributed_main", lambda device, *rest: devices.append(device))
    distributed_utils.call_main(cfg, None)
    assert (devices, cfg.distributed_training.distributed_backend) == ([1], "nccl")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    cfg.distributed_training.distributed_init_method = None
    with pytest.raises(ValueError, match=r"1 GPUs are visible.*--nproc_per_node"):
        distributed_utils.call_main(cfg, None)


@pytest.mark.parametrize("method", [[], ["--distributed-init-method", "tcp://localhost:1"]])
def test_processes_that_nothing_would_start(started, method):
    """With an init method fairseq alone trains nothing and exits with 0."""
    with pytest.raises(ValueError, match="torchrun"):
        started("--distributed-world-size", "2", *method)


def test_processes_started_by_hand(started):
    arguments = ["--distributed-world-size", "2", "--distributed-rank", "1", "--distributed-no-spawn"]
    distributed = started(*arguments, "--distributed-init-method", "tcp://localhost:1")
    assert (distributed.distributed_rank, distributed.distributed_backend) == (1, "gloo")


def test_data_parallel_wrapper_on_a_cpu(tmp_path: Path):
    from fairseq.models import distributed_fairseq_model

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        module = torch.nn.Linear(2, 2)
        named = {"module": module, "device_ids": [0], "output_device": 0}
        with pytest.raises((ValueError, RuntimeError)):
            distributed_fairseq_model.DistributedDataParallel.__wrapped__(**named)
        wrapped = distributed_fairseq_model.DistributedDataParallel(**named)
        assert isinstance(wrapped, torch.nn.parallel.DistributedDataParallel)
    finally:
        torch.distributed.destroy_process_group()


EPOCHS = 4


@pytest.fixture
def counts(monkeypatch):
    numbers = []

    def counting(original):
        def begin_epoch(self, epoch):
            numbers.append(len(multiprocessing.active_children()))
            return original(self, epoch)

        return begin_epoch

    monkeypatch.setattr(Trainer, "begin_epoch", counting(Trainer.begin_epoch))
    return numbers


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize(("reused", "buffer"), [(True, 10), (False, 10), (False, 0)])
def test_workers_end_with_their_epoch(reused, buffer, counts, corpus, tmp_path, monkeypatch):
    """Epochs of one update, each with a validation; of datasets whose batches change and of others."""
    monkeypatch.setattr(LanguagePairDataset, "can_reuse_epoch_itr_across_epochs", reused)
    monkeypatch.setattr(gc, "collect", lambda *generation: 0)
    gc.disable()
    try:
        flags = ["--max-epoch", EPOCHS, "--batch-size", 24, "--data-buffer-size", buffer, "--no-epoch-checkpoints"]
        before = len(multiprocessing.active_children())
        train(corpus, tmp_path, *flags, "--num-workers", 1)
        assert len(counts) == EPOCHS
        # a thread ends the last epoch's and validation's
        assert max(counts) - before <= 2
        assert wait_for(lambda: len(multiprocessing.active_children()) == before)
    finally:
        gc.enable()


def test_the_last_item_lets_go_of_the_others():
    source = (number for number in (1, 2, 3, 4))
    iterator, alive = CountingIterator(source, start=0, total=3), weakref.ref(source)
    del source
    assert [next(iterator), next(iterator)] == [1, 2]
    assert alive() is not None
    assert next(iterator) == 3
    assert alive() is None
    assert (iterator.n, iterator.has_next(), list(iterator)) == (3, False, [])

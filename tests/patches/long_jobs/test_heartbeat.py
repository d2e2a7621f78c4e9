"""A process that is stopped or hangs ends the training after a time limit, and is named."""

import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.patches.long_jobs import heartbeat
from fairseq_poolingformer.patches.long_jobs.interruption import STALLED, pass_signals_on
from tests.patches.helpers import train

LIMIT = 6  # seconds; the processes need less for an update even on a busy machine


@pytest.fixture
def two(corpus, tmp_path):
    """Train in two processes, the second of which does something before an update; returns the first's status and
    output."""

    def process(rank, act):
        torch.set_num_threads(1)
        logging.getLogger().addHandler(logging.FileHandler(tmp_path / f"out{rank}"))
        if rank == 1:
            from fairseq.trainer import Trainer

            before = Trainer.train_step

            def step(self, samples, *rest):
                if self.get_num_updates() == 2:
                    act()
                return before(self, samples, *rest)

            Trainer.train_step = step
        ranks = ["--distributed-world-size", 2, "--distributed-rank", rank, "--distributed-no-spawn"]
        meeting = ["--distributed-init-method", f"file://{tmp_path}/meet"]
        train(corpus, tmp_path / "model", *ranks, *meeting, "--max-update", 4, "--heartbeat-timeout", LIMIT)

    def start(act):
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=process, args=(rank, act)) for rank in range(2)]
        for one in processes:
            one.start()
        processes[0].join(1200)
        for one in processes:
            one.kill()
            one.join()
        return processes[0].exitcode, (tmp_path / "out0").read_text()

    return start


def test_a_stopped_process_is_named_by_the_one_that_waits(two):
    status, output = two(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    assert status == STALLED, output
    assert "process 0 has made no progress for 6 s (--heartbeat-timeout) after 2 updates" in output
    assert re.search(r"process 1 \(pid \d+ on \S+\) has not been heard of for \d+ s", output)


class Store(dict):
    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]


@pytest.fixture
def watch(monkeypatch):
    """A watch without its threads, and the store that it asks."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    store = Store()
    return heartbeat.Watch(60.0, store, 0, 3), store


def hear(store, *updates, age=0.0):
    for rank, number in enumerate(updates):
        store.set(f"heartbeat/{rank}", f"{time.time() - (age if rank == 1 else 0)} {number} {100 + rank} node")


def test_the_process_that_is_behind_is_named(watch):
    watch, store = watch
    hear(store, 7, 6, 7)
    assert watch._others() == ["process 1 (pid 101 on node) hangs after 6 updates"]
    hear(store, 7, 7, 7)
    assert watch._others() == ["all processes wait"]
    hear(store, 7, 7, 7, age=45.0)
    (only,) = watch._others()
    assert only == "process 1 (pid 101 on node) has not been heard of for 45 s, it is stopped or dead"


@pytest.mark.parametrize("beats", ["none", "one", "many"])
def test_the_clock_starts_with_the_first_progress_and_anew_with_each(watch, monkeypatch, beats):
    watch, _ = watch
    slept, ended = [], []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: len(slept) < 100 and not ended)
    monkeypatch.setattr(watch, "_end", lambda: ended.append(sum(slept)))

    def sleep(seconds):
        slept.append(seconds)
        if beats == "many" or (beats == "one" and len(slept) == 3):
            watch.beat(1)

    monkeypatch.setattr(heartbeat.time, "sleep", sleep)
    watch._count()
    assert ended == ([] if beats != "one" else [3 * 5.0 + 60.0])


@pytest.mark.parametrize(("timeout", "processes", "tpu"), [(0, 2, False), (-1, 1, False), (60, 2, True)])
def test_nothing_watches_without_a_limit_or_other_processes(timeout, processes, tpu):
    options = SimpleNamespace(heartbeat_timeout=timeout, distributed_world_size=processes)
    cfg = SimpleNamespace(distributed_training=options, common=SimpleNamespace(tpu=tpu))
    assert heartbeat.watch_progress(lambda cfg: 7, cfg) == 7
    assert heartbeat._watches == []


def test_the_process_that_started_the_others_ends_with_their_status():
    error = torch.multiprocessing.ProcessExitedException("", error_index=0, error_pid=1, exit_code=STALLED)
    with pytest.raises(SystemExit) as end, pass_signals_on():
        raise error
    assert end.value.code == STALLED

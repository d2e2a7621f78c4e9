"""``--heartbeat-timeout``: processes that make no progress end, and say which of them the others wait for."""

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from fairseq_poolingformer.patches.long_jobs.interruption import STALLED
from fairseq_poolingformer.patches.patching import set_within

logger = logging.getLogger(__name__)

DEFAULT_LIMIT = 1800  # seconds, of several processes; as long as gloo waits by default
LONGEST_QUESTION = 10  # seconds for asking the other processes how far they are

_watches: list["Watch"] = []  # of this process; one at most


def watch_progress(original: Callable, cfg: Any) -> int:
    """Watch the progress of each of several processes.

    When one is stopped or hangs, the others wait for it: in C++, where no signal handler of Python runs. So a thread of
    each process ends it after the time limit. The launcher then ends the others.
    """
    from fairseq.distributed import utils

    distributed = cfg.distributed_training
    waits = patience(cfg)
    if not waits or cfg.common.tpu or distributed.distributed_world_size < 2:
        return original(cfg)
    init = torch.distributed.init_process_group
    with set_within(torch.distributed, "init_process_group", lambda **named: init(**named, **waits)):
        rank = original(cfg)
    utils.get_global_group._global_group = torch.distributed.new_group(**waits)
    store = torch.distributed.distributed_c10d._get_default_store()
    _watches[:] = [Watch(_limit(cfg), store, rank, distributed.distributed_world_size)]
    return rank


def patience(cfg: Any) -> dict[str, timedelta]:
    """Torch's own limit of time for a group of processes, after the watch's: its messages name no process."""
    limit = _limit(cfg)
    return {"timeout": timedelta(seconds=limit + 10 * LONGEST_QUESTION)} if limit > 0 else {}


def _limit(cfg: Any) -> float:
    limit = cfg.distributed_training.heartbeat_timeout
    return DEFAULT_LIMIT if limit == -1 else limit


def watch_without_fairseq(original: Callable, model: Any, timeout: Any) -> Any:
    """Leave out fairseq's own watch: it sends SIGINT, which a process that waits for another in C++ never sees."""
    return model


def count_progress(original: Callable, self: Any, *arguments: Any, **named: Any) -> Any:
    """Count a call of a Trainer's method as progress."""
    result = original(self, *arguments, **named)
    for watch in _watches:
        watch.beat(self.get_num_updates())
    return result


class Watch:
    """Ends this process with status :data:`STALLED` when it has made no progress for some time.

    Two threads: one tells the other processes how far this one is, the other one counts the time. The clock starts with
    the first :meth:`beat`, because loading data and a checkpoint may take long.

    Args:
        limit: seconds without progress.
        store: where torch's processes meet.
        rank: of this process.
        processes: their number.
    """

    def __init__(self, limit: float, store: Any, rank: int, processes: int) -> None:
        self.limit, self._store, self._rank, self._processes = limit, store, rank, processes
        self._interval = min(limit / 10, 5.0)
        self._updates, self._beats = 0, 0
        for target in (self._tell, self._count):
            threading.Thread(target=target, daemon=True).start()

    def beat(self, updates: int) -> None:
        """Say that this process has made progress, and how many updates it has."""
        self._updates = updates
        self._beats += 1

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the store is closed at the end of the training
            while True:
                words = (time.time(), self._updates, os.getpid(), socket.gethostname())
                self._store.set(f"heartbeat/{self._rank}", " ".join(map(str, words)))
                time.sleep(self._interval)

    def _count(self) -> None:
        seen, waited = 0, 0.0
        while torch.distributed.is_initialized():
            time.sleep(self._interval)  # time in which the whole job is suspended does not count
            waited = 0.0 if self._beats != seen or not seen else waited + self._interval
            seen = self._beats
            if waited >= self.limit:
                self._end()

    def _end(self) -> None:
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.extend(self._others()), daemon=True)
        asking.start()
        asking.join(LONGEST_QUESTION)
        logger.error(
            f"process {self._rank} has made no progress for {self.limit:g} s (--heartbeat-timeout) after "
            f"{self._updates} updates: {'; '.join(found) or 'the other processes cannot be asked'}. Ending with status "
            f"{STALLED}; the same command continues from the last checkpoint"
        )
        logging.shutdown()
        sys.stdout.flush()
        os._exit(STALLED)

    def _others(self) -> list[str]:
        """Say which processes have not been heard of, or else which have made the fewest updates."""
        heard = {}
        for rank in range(self._processes):
            then, updates, pid, host = self._store.get(f"heartbeat/{rank}").decode().split()
            heard[rank] = (time.time() - float(then), int(updates), f"process {rank} (pid {pid} on {host})")
        silent = [
            f"{name} has not been heard of for {age:.0f} s, it is stopped or dead"
            for age, _, name in heard.values()
            if age > max(self.limit / 2, 2 * self._interval)
        ]
        fewest = min(updates for _, updates, _ in heard.values())
        behind = [f"{name} hangs after {updates} updates" for _, updates, name in heard.values() if updates == fewest]
        return silent or (behind if len(behind) < self._processes else ["all processes wait"])

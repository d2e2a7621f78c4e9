"""What three gloo processes do of which one fails; each prints how it ended."""

import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as distributed

from fairseq_poolingformer.attention import TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import GroupRanks, Shard
from fairseq_poolingformer.attention.sharding.ranks import telling

SIZE = 3


def step(ranks, tokens=5, before_backward=None):
    """A layer's forward and backward pass."""
    torch.manual_seed(0)
    layer = TwoLevelAttention(8, 2, window=Window(3))
    shard = Shard.of(1, 5, ranks=ranks)
    x = torch.randn(1, tokens, 8, requires_grad=True)
    with telling(ranks if before_backward else None):  # a layer's own errors are told without it
        loss = layer(x, shard=shard).sum()
        if before_backward:
            before_backward()
        loss.backward()


def wrong_part(ranks):
    """A ValueError in the middle of a training."""
    step(ranks)
    step(ranks, tokens=4 if ranks.rank == 1 else 5)


def out_of_memory(ranks):
    """In the backward pass, of a process that goes on; the group's timeout ends the others."""

    def fail():
        raise RuntimeError("out of memory")

    step(ranks)
    try:
        step(ranks, before_backward=fail if ranks.rank == 2 else None)
    except RuntimeError:
        if ranks.rank != 2:
            raise
        time.sleep(15)


def killed(ranks):
    """In the backward pass."""
    step(ranks)
    step(ranks, before_backward=(lambda: os.kill(os.getpid(), signal.SIGKILL)) if ranks.rank == 1 else None)


def stuck(ranks):
    step(ranks)
    if ranks.rank == 0:
        time.sleep(15)
    else:
        step(ranks)


def recovered(ranks):
    """All ranks leave out a batch; later one is killed."""
    for _ in range(2):
        with suppress(ValueError):
            step(ranks, tokens=4)
    step(ranks)
    killed(ranks)


def refused_masks(ranks):
    """After which the group goes on."""
    mask = torch.zeros(1, 7 if ranks.rank == 1 else 5, dtype=torch.bool)
    try:
        Shard.of(1, 5, ranks=ranks, global_mask=mask)
    except ValueError as error:
        step(ranks)
        raise SystemExit(str(error)) from None


def run(case, rank, folder):
    rendezvous = {"init_method": f"file://{folder}/{case}", "rank": rank, "world_size": SIZE}
    distributed.init_process_group("gloo", **rendezvous)
    distributed.barrier()
    limit = timedelta(seconds=7 if case in ("stuck", "out_of_memory") else 60)
    ranks = GroupRanks(distributed.new_group(timeout=limit), patience=3.0)
    try:
        globals()[case](ranks)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return "went on"


def main(cases):
    """Each process's output: ``case rank text``."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            for rank in range(SIZE):
                if not os.fork():
                    os.write(1, f"{case}\t{rank}\t{run(case, rank, folder)}\n".encode())  # a whole line at once
                    os._exit(0)
        for _ in range(SIZE * len(cases)):
            os.wait()


if __name__ == "__main__":
    main(sys.argv[1:])

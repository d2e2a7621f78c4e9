"""Four gloo processes, in groups of 1 to 4, compute what one does."""

import os
import subprocess
import sys
import time

import pytest
import torch

from tests.attention.sharding.processes import CASES, result
from tests.attention.sharding.ranks import assert_same, joined, whole

SIZE = 4
LIMIT = 300  # seconds, of which a busy machine needs many


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the results of all processes."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "tests.attention.sharding.processes"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(SIZE), str(folder)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(SIZE)
    ]
    try:
        end = time.monotonic() + LIMIT
        for process in processes:
            _, errors = process.communicate(timeout=max(1.0, end - time.monotonic()))
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return folder


@pytest.mark.parametrize("size", range(1, SIZE + 1))
@pytest.mark.parametrize("name", CASES)
def test_processes_compute_what_one_does(folder, name, size):
    case = CASES[name]
    # dropout is decided by pairs, as in a shard of one process
    expected = result(case, None, 1) if case.dropout else whole(*case.make())
    results = [torch.load(folder / f"{name} {size} {rank}.pt") for rank in range(size)]
    assert_same(joined(results), expected, 1e-12 if case.dtype == torch.float64 else 1e-5)

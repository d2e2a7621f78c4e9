"""Four gloo processes, in groups of one, two and four, compute what one does."""

import functools
import multiprocessing

import pytest
import torch

from tests.attention.sharding.processes import CASES, GROUPS, main, result
from tests.attention.sharding.ranks import assert_same, joined, whole

SIZE = max(GROUPS)
LIMIT = 300  # seconds, of which a busy machine needs many


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the results of all processes."""
    folder = tmp_path_factory.mktemp("processes")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=main, args=(rank, SIZE, folder)) for rank in range(SIZE)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(LIMIT)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    return folder


@functools.cache
def expected(name):
    """Of one process; dropout is decided by pairs, as in a shard of it."""
    case = CASES[name]
    return result(case, None, 1) if case.dropout else whole(*case.make())


@pytest.mark.parametrize("size", GROUPS)
@pytest.mark.parametrize("name", CASES)
def test_processes_compute_what_one_does(folder, name, size):
    results = [torch.load(folder / f"{name} {size} {rank}.pt") for rank in range(size)]
    assert_same(joined(results), expected(name), 1e-12 if CASES[name].dtype == torch.float64 else 1e-5)

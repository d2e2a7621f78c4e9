"""Processes of which one fails: the others end, and say which."""

import os
import subprocess
import sys

import pytest

GONE = "RuntimeError: rank {} is gone or stuck: an exchange failed, and no word came within 3 s"
WRONG = "ValueError: x has 4 tokens, but the shard 5: make a shard for each batch"
MASK = "ValueError: global_mask must be (1, 5) bool, got (1, 7) torch.bool"
EXPECTED = {  # of each rank; None of one that is killed
    "wrong_part": [f"RuntimeError: rank 1 failed: {WRONG}", WRONG, f"RuntimeError: rank 1 failed: {WRONG}"],
    "out_of_memory": ["RuntimeError: rank 2 failed: RuntimeError: out of memory"] * 2 + ["went on"],
    "killed": [GONE.format(1), None, GONE.format(1)],
    "stuck": ["went on", GONE.format(0), GONE.format(0)],
    "recovered": [GONE.format(1), None, GONE.format(1)],
    "refused_masks": [
        "SystemExit: part 1 of the document was refused, as its rank's error says",
        MASK.replace("ValueError", "SystemExit"),
        "SystemExit: part 1 of the document was refused, as its rank's error says",
    ],
}


@pytest.fixture(scope="module")
def ends():
    """How each process ended, by case and rank."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.attention.sharding.failures", *EXPECTED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2]
    return {(case, int(rank)): text for case, rank, text in rows}


@pytest.mark.parametrize("case", EXPECTED)
def test_the_others_end_and_say_which_rank_failed(ends, case):
    assert [ends.get((case, rank)) for rank in range(3)] == EXPECTED[case]

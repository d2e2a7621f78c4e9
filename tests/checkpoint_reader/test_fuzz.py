"""Random files: each is a value or a sentence, and nothing else happens. 300 of them, and 10,000 with --thorough."""

import collections
import copy
import io

import pytest

from fairseq_poolingformer.checkpoint_reader import files
from tests.checkpoint_reader import fuzz
from tests.checkpoint_reader.watched import assert_harmless, watched

MEMORY, SECONDS = 3 * 2**29, 20


@pytest.fixture
def count(request):
    return 10_000 if request.config.getoption("--thorough") else 300


def read(data):
    return files.read(io.BytesIO(data))


def use(value):
    """Do what commands do with values."""
    copy.deepcopy(value)
    return len(str(value))


def test_checkpoints(count):
    outcomes = watched(read, range(count), seconds=SECONDS, memory=MEMORY, make=fuzz.checkpoint, use=use)
    assert_harmless(outcomes, ("Malformed", "Refused"))
    kinds = collections.Counter(outcome.error for outcome in outcomes)
    print(kinds, collections.Counter(outcome.value[:40] for outcome in outcomes if outcome.error).most_common(60))
    assert kinds[None] > count / 30  # many are read, and many get far
    assert len({outcome.value for outcome in outcomes if outcome.error}) > 30

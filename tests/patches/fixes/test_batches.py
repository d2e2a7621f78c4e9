"""No example is lost to batching."""

import inspect

import numpy
import pytest
from fairseq.data import data_utils

from tests.patches.helpers import EXAMPLES, generate, train, unpatched

SIZES = numpy.array([3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 3, 4, 5], dtype=numpy.int64)
DROPS = "[:-1]" in inspect.getsource(data_utils.batch_by_size.__wrapped__)  # 0.12.2 does not


def _size(index):
    return SIZES[index]


def batches_of(count, **options):
    return data_utils.batch_by_size(numpy.arange(count), _size, **options)


@pytest.mark.parametrize("vector", [True, False], ids=["sizes-as-vector", "sizes-as-function"])
@pytest.mark.parametrize("multiple", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [{"max_sentences": 4}, {"max_tokens": 24}, {"max_sentences": 100}])
@pytest.mark.parametrize("count", [1, 4, 12, 13])
def test_every_index_is_in_one_batch(vector, multiple, limit, count):
    sizes = SIZES[:count] if vector else None
    batches = batches_of(count, num_tokens_vec=sizes, required_batch_size_multiple=multiple, **limit)
    assert numpy.concatenate(batches).tolist() == list(range(count))
    for batch in batches:
        assert len(batch) <= limit.get("max_sentences", 100)
        assert len(batch) * SIZES[batch].max() <= limit.get("max_tokens", 1000)


def test_every_index_is_in_one_batch_of_fixed_shapes():
    batches = batches_of(13, fixed_shapes=[(4, 4), (2, 8)], required_batch_size_multiple=8)
    assert numpy.concatenate(batches).tolist() == list(range(13))


@pytest.mark.parametrize("kind", [list, iter, numpy.array], ids=["list", "iterator", "array"])
def test_indices_of_any_kind(kind):
    batches = data_utils.batch_by_size(kind(list(range(5))), _size, max_sentences=4, required_batch_size_multiple=4)
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4]]


def test_no_index_gives_no_batch():
    assert batches_of(0, num_tokens_vec=SIZES[:0], max_sentences=4, required_batch_size_multiple=8) == []


@pytest.mark.skipif(not DROPS, reason="this fairseq drops no batch")
def test_fairseq_alone_drops_the_last_batch(monkeypatch):
    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert sum(map(len, batches_of(12, max_sentences=8, required_batch_size_multiple=8))) == 8


def test_as_many_hypotheses_as_inputs(corpus, tmp_path, monkeypatch):
    train(corpus, tmp_path, "--max-update", 1)
    checkpoint = tmp_path / "checkpoint_last.pt"
    for size in (5, 8, 12, 100):  # the required multiple is fairseq's default, 8
        assert len(generate(corpus, checkpoint, "--batch-size", size)) == EXAMPLES["test"], size
    assert len(generate(corpus, checkpoint, "--max-tokens", 50)) == EXAMPLES["test"]

    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert (len(generate(corpus, checkpoint, "--batch-size", 12)) < EXAMPLES["test"]) == DROPS


def test_an_epoch_has_every_example(corpus, tmp_path, monkeypatch):
    """24 sentences are batches of 10, 10 and 4."""
    arguments = ["--max-epoch", 1, "--batch-size", 10, "--required-batch-size-multiple", 5]
    assert train(corpus, tmp_path / "patched", *arguments)["optimizer_history"][-1]["num_updates"] == 3
    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert train(corpus, tmp_path / "alone", *arguments)["optimizer_history"][-1]["num_updates"] == (2 if DROPS else 3)


# masked_lm

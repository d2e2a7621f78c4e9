import tracemalloc

import numpy as np

from fairseq_poolingformer.tasks.shared import estimates
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES, resampled_means


def test_means_of_many_examples_are_made_in_blocks_and_are_those_of_all_at_once(monkeypatch):
    monkeypatch.setattr(estimates, "DRAWN", 2**20)
    count = 5_000
    table = np.random.default_rng(3).random((count, 3))
    generator = np.random.default_rng(0)
    drawn = [np.bincount(generator.integers(count, size=count), minlength=count) for _ in range(RESAMPLES)]
    expected = np.stack(drawn) @ table / count
    del drawn
    tracemalloc.start()
    means = resampled_means(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(means, expected, rtol=1e-13)
    assert (means == resampled_means(table)).all()
    assert peak < RESAMPLES * count * 3 * 8


def test_one_example_has_no_interval():
    assert (resampled_means(np.array([[0.5, 1.0]])) == [0.5, 1.0]).all()

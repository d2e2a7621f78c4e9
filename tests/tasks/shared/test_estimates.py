import tracemalloc

import numpy as np

from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES, resampled_means


def test_means_of_many_examples_are_made_in_blocks_and_are_those_of_all_at_once():
    count = 20_000
    table = np.random.default_rng(3).random((count, 3))
    generator = np.random.default_rng(0)
    drawn = [np.bincount(generator.integers(count, size=count), minlength=count) for _ in range(RESAMPLES)]
    expected = np.stack(drawn) @ table / count
    del drawn
    tracemalloc.start()
    found = resampled_means(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found == expected).all()
    assert peak < RESAMPLES * count * 8 * 0.6

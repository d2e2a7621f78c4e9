"""What the criterion of masked language models logs."""

import math

import pytest
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.masked_lm.task import LongMaskedLMCriterion


def test_bits_by_token_and_by_character():
    """Two workers: 12 and 20 nats, 5 and 3 masked tokens, 10 and 6 characters; the third saw none."""
    logs = [(12.0, 5, 10), (20.0, 3, 6), (0.0, 0, 0)]
    names = ("loss", "sample_size", "num_characters")
    with metrics.aggregate(new_root=True) as logged:
        LongMaskedLMCriterion.reduce_metrics([dict(zip(names, log, strict=True)) for log in logs])
    values = logged.get_smoothed_values()
    assert values["loss"] == pytest.approx(32 / 8 / math.log(2), abs=1e-3)
    assert values["bits_per_character"] == pytest.approx(32 / 16 / math.log(2), abs=1e-3)
    assert values["ppl"] == pytest.approx(math.exp(4), abs=0.1)

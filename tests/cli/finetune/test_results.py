"""The table of a job."""

import re

import pytest

from fairseq_poolingformer.cli.finetune import results

FIGURES = {"accuracy": {"mean": 80.0, "low": 70.0, "high": 90.0}, "precision_a": {"mean": 1.0}}
RESULT = {
    "split": "test",
    "examples": 40,
    "system": "long",
    "systems": {"long": {"tokens": 4096, "seconds": 130, "figures": FIGURES}, "always a": {"figures": FIGURES}},
}


def test_the_table_has_systems_and_baselines():
    head, long, always, note = results.as_table(RESULT).splitlines()
    assert head.split("  ")[0] == "test, 40 examples"
    assert re.split("  +", long) == ["long", "4,096", "2 minutes", "80.00 [70.00, 90.00]"]
    assert "precision_a" not in head
    assert always.startswith("always a")
    assert "1,000 resamples" in note


@pytest.mark.parametrize(
    ("changed", "note"), [({"split": "valid"}, "also chose the checkpoint"), ({"examples": 3}, "3 examples are few")]
)
def test_what_a_reader_of_figures_must_know(changed, note):
    assert note in results.as_table(RESULT | changed)
    assert note not in results.as_table(RESULT)

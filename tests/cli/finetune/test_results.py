"""The table of a job, and the folders that are believed."""

import json
import re

import pytest

from fairseq_poolingformer.cli.finetune import results

FIGURES = {"accuracy": {"mean": 80.0, "low": 70.0, "high": 90.0}, "precision_a": {"mean": 1.0}, "mse": {"mean": 2.0}}
RESULT = {
    "split": "test",
    "examples": 40,
    "system": "long",
    "systems": {"long": {"tokens": 4096, "seconds": 130, "figures": FIGURES}, "always a": {"figures": FIGURES}},
}


def test_the_table_has_systems_and_baselines():
    head, long, always, note = results.as_table(RESULT).splitlines()
    assert head.split("  ")[0] == "test, 40 examples"
    assert re.split("  +", long) == ["long", "4,096", "2 minutes", "80.00 [70.00, 90.00]", "2.00"]
    assert "precision_a" not in head
    assert "mse (not in %)" in head
    assert always.startswith("always a")
    assert "1,000 resamples" in note


@pytest.mark.parametrize(
    ("changed", "note"), [({"split": "valid"}, "also chose the checkpoint"), ({"examples": 3}, "3 examples are few")]
)
def test_what_a_reader_of_figures_must_know(changed, note):
    assert note in results.as_table(RESULT | changed)
    assert note not in results.as_table(RESULT)


def test_a_folder_is_believed_where_it_is_whole(tmp_path):
    assert results.read_whole(tmp_path) is None
    (tmp_path / "model.safetensors").write_text("weights")
    (tmp_path / results.SCORES).write_text(json.dumps(RESULT | {"files": {"model.safetensors": 7}}))
    assert results.read_whole(tmp_path)["examples"] == 40
    (tmp_path / "model.safetensors").write_text("weig")
    with pytest.raises(ValueError, match=r"model\.safetensors: is gone or has changed; name another --output-folder"):
        results.read_whole(tmp_path)

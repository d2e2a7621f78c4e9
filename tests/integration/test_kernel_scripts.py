"""The scripts of run_scripts/kernels, as far as they run without ttsem: the calls and the results."""

from __future__ import annotations

import pytest
import torch

from run_scripts.kernels.calls import CALLS, GREATEST_ERROR, error
from run_scripts.kernels.results import Results
from tests.lab import run_script

SCRIPT = "test_kernels.sh"


def test_each_step_is_a_command():
    output = run_script(SCRIPT, "dry_run=1", "out=/out", "venv=/none", "capabilities=80", "minutes=5")
    assert "-m venv /none" in output
    assert output.index("/cases.py /out") < output.index("/stages.py /out")
    assert "--capabilities 80" in output
    only = run_script(SCRIPT, "dry_run=1", "venv=/none", "steps=stages")
    assert "cases.py" not in only
    assert "steps= must be some of" in run_script(SCRIPT, "dry_run=1", "steps=stage", status=1)


def test_results_of_other_kernels_do_not_count(tmp_path):
    Results(tmp_path / "x.jsonl", "old").add("a", value=1)
    Results(tmp_path / "x.jsonl", "new").add("b", value=1)
    Results(tmp_path / "x.jsonl", "new").add("b", value=2)
    results = Results(tmp_path / "x.jsonl", "new")
    assert "a" not in results
    assert [row["value"] for row in results] == [2]


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_valid_and_exact_numbers_are_what_they_are_compared_with(name, monkeypatch):
    """With the exact computation in the kernels' place; dropout needs the kernels."""
    call = CALLS[name]
    if getattr(call, "dropout_p", 0.0):
        pytest.skip("the reference draws other weights")
    monkeypatch.setattr(type(call), "by_kernels", lambda self, tensors: self.exactly(tensors, tensors))
    results = call.results(torch.float64)
    assert {"out", "key", "value"} <= results.keys()
    assert max(error(*pair) for pair in results.values()) == 0
    wrong = {key: (actual + 0.01 * actual.abs().max(), exact) for key, (actual, exact) in results.items()}
    assert min(error(*pair) for pair in wrong.values()) > max(GREATEST_ERROR.values())

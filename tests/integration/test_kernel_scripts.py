"""The scripts of run_scripts/kernels, as far as they run without ttsem: faults, results, and their tables."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.attention.backends import BACKENDS
from run_scripts.kernels import report
from run_scripts.kernels.calls import CALLS, GREATEST_ERROR, KernelCall, error
from run_scripts.kernels.mutations import MUTATIONS, mutate
from run_scripts.kernels.results import KERNELS, Results
from tests.integration.test_run_scripts import call

SCRIPT = "test_kernels.sh"


def test_each_step_is_a_command():
    output = call(SCRIPT, "dry_run=1", "out=/out", "venv=/none", "capabilities=80", "minutes=5")
    assert "-m venv /none" in output
    assert output.index("/cases.py /out") < output.index("/mutations.py /out") < output.index("/stages.py /out")
    assert "--minutes 5 \\\n    --capabilities 80" in output
    only = call(SCRIPT, "dry_run=1", "venv=/none", "steps=stages")
    assert "cases.py" not in only
    assert "report.py" in only
    assert "steps= must be some of" in call(SCRIPT, "dry_run=1", "steps=stage", status=1)


def test_another_python_is_asked_for(tmp_path):
    assert "there is no python9" in call(SCRIPT, f"venv={tmp_path}/venv", f"out={tmp_path}", "python=python9", status=1)


def test_each_fault_changes_a_kernel_in_one_place(tmp_path):
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names) >= 15
    for mutation in MUTATIONS:
        assert (KERNELS / mutation.file).read_text(encoding="utf-8").count(mutation.old) == 1, mutation.name
        assert set(mutation.calls.split(",")) <= CALLS.keys()
    line = mutate(MUTATIONS[0], tmp_path)
    path = next(tmp_path.rglob(MUTATIONS[0].file))
    assert MUTATIONS[0].new in path.read_text(encoding="utf-8").splitlines()[line - 1]
    with pytest.raises(ValueError, match="0 times"):
        mutate(MUTATIONS[0]._replace(old="no such text"), tmp_path / "other")


def test_kernels_are_executed_without_the_self_check(monkeypatch):
    ttsem = SimpleNamespace(session=lambda capability: nullcontext(capability), KernelFault=ValueError, Fault=object)
    monkeypatch.setitem(sys.modules, "ttsem", SimpleNamespace(sanitize=ttsem))
    execute = import_module("run_scripts.kernels.execute")
    checked: list[object] = []
    monkeypatch.setattr(BACKENDS["triton"], "self_check", lambda call: checked.append(call))
    with execute.sanitized(90) as session:
        assert session == 90
        BACKENDS["triton"].self_check(None)
    assert checked == []
    BACKENDS["triton"].self_check(None)
    assert checked == [None]


def test_results_of_other_kernels_do_not_count(tmp_path):
    Results(tmp_path / "x.jsonl", "old").add("a", value=1)
    Results(tmp_path / "x.jsonl", "new").add("b", value=1)
    Results(tmp_path / "x.jsonl", "new").add("b", value=2)
    results = Results(tmp_path / "x.jsonl", "new")
    assert "a" not in results
    assert [row["value"] for row in results] == [2]


def launch(stages, **verdicts):
    return {"key": "window/bfloat16/90/0/forward", "kernel": "forward", "capability": 90, "dtype": "bfloat16",
            "stages": stages, "verdicts": verdicts, "odd": [], "copies": [], "without_waits": []}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "agree"),
    [
        (launch(5, match=4, approx=1), True),
        (launch(5, match=4), False),
        (launch(5, match=4, unsupported=1), False),
        (launch(5, match=4, mismatch=1), False),
        (launch(5, error=5), False),
        (launch(0), False),
    ],
)
def test_stages_that_were_not_compared_do_not_agree(row, agree):
    assert report.agrees(row) == agree
    header, _, line, *rest = report.stages([row])
    columns = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert columns["agree"] == str(int(agree))
    assert bool(rest) != agree


def test_cases_that_failed_are_named():
    rows = [
        {"key": "a/test_x.py::test_y[1]", "outcome": "passed", "launches": 2, "seconds": 1.0, "finding": ""},
        {"key": "a/test_x.py::test_y[2]", "outcome": "failed", "launches": 1, "seconds": 1.0, "finding": "race"},
    ]
    lines = list(report.cases(rows))
    assert lines[2] == "| `test_x.py::test_y` | 2 | 1 | 3 | 2 |"
    assert lines[-1].endswith("test_y[2]: failed: race")


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_valid_and_exact_numbers_are_what_they_are_compared_with(name, monkeypatch):
    """With the reference in the kernels' place; dropout needs the kernels."""
    attend = KernelCall._attend
    monkeypatch.setattr(KernelCall, "_attend", lambda self, tensors, backend="": attend(self, tensors, "reference"))
    if CALLS[name].dropout_p:
        pytest.skip("the reference draws other weights")
    results = CALLS[name].results(torch.float64)
    assert {"out", "query", "key", "value"} <= results.keys()
    assert max(error(*pair) for pair in results.values()) == 0
    wrong = {key: (actual + 0.01 * actual.abs().max(), exact) for key, (actual, exact) in results.items()}
    assert min(error(*pair) for pair in wrong.values()) > max(GREATEST_ERROR.values())


def test_nan_is_an_error():
    x = torch.tensor([1.0, torch.nan])
    assert not error(x, torch.ones(2).double()) <= sys.float_info.max

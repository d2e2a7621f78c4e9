"""The script that runs transformers' own tests of its models, without them, and its report."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "run_scripts"


def test_it_installs_a_version_and_runs_its_tests(tmp_path):
    options = ["dry_run=1", "version=5.9.0", f"out={tmp_path}", f"venv={tmp_path}/venv"]
    command = [SCRIPTS / "test_transformers.sh", *options]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    output = " ".join(output.replace("\\\n", "").split())
    assert " transformers==5.9.0 " in output
    assert f"--branch v5.9.0 https://github.com/huggingface/transformers {tmp_path}/transformers-5.9.0.part" in output
    assert f"{SCRIPTS}/transformers_tests/test_classes.py" in output
    assert output.endswith(f"{SCRIPTS}/transformers_tests/report.py {tmp_path}/results.xml")


FAILED = '<failure message="wrong&#10;more"/>'


@pytest.mark.parametrize(
    ("theirs", "name", "ours", "status", "said"),
    [
        ("", "test_training", FAILED, 1, "Bart: test_training: UNEXPLAINED: wrong\n"),
        (FAILED, "test_training", FAILED, 0, ""),
        ("", "test_attention_outputs", FAILED, 0, "Bart: test_attention_outputs: reads the encoder's weights as n × n"),
        ("", "test_training", '<skipped message="why"/>', 0, "Bart: test_training: skipped here alone: why"),
        ("", "test_training", "", 0, "| PoolingformerBart | 1 | 0 | 0 | 0 |"),
    ],
)
def test_the_report_fails_for_what_has_no_reason(tmp_path, theirs, name, ours, status, said):
    cases = [("Bart", theirs), ("PoolingformerBart", ours)]
    lines = [f'<testcase classname="a.Test{kind}" name="{name}">{child}</testcase>' for kind, child in cases]
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    command = [sys.executable, SCRIPTS / "transformers_tests" / "report.py", tmp_path / "results.xml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert said in done.stdout

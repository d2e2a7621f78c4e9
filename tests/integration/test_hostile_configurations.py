"""Random configurations of checkpoints through commands: each ends well or in a sentence, and touches nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_random_configurations(tmp_path, request):
    """No signal, hang, connection or process, no 2 GiB; nothing that the file names is opened, nothing else written."""
    count = 10_000 if request.config.getoption("--thorough") else 300
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile_configurations", tmp_path, 0, count, 10 * count]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        list(map(str, command)), cwd=root, env=environment, capture_output=True, text=True, timeout=10 * count
    )
    *findings, counts = map(json.loads, done.stdout.splitlines())
    assert findings == []
    assert counts["cases"] == count
    assert set(counts["ends"]) <= {"done", "sentence", "unfit"}
    assert counts["ends"]["done"] > count // 10
    assert counts["megabytes"] < 2048

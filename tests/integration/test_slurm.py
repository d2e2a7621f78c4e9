"""run_scripts/slurm.sh under a faked scheduler: a job of two nodes is warned, saves, is requeued, and finishes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The part of SLURM that the scripts use. sbatch runs the job until it is not requeued, and sends the signal that the
# script's header asks for to the script alone, as soon as the training is under way.
SBATCH = r"""
import os, re, signal, subprocess, sys, time
state, script = os.environ["FAKE_SLURM"], sys.argv[1]
(name,) = re.findall(r"^#SBATCH --signal=B:(\w+)@\d+$", open(script).read(), re.MULTILINE)
job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "0"}
for start in range(5):
    process = subprocess.Popen(["bash", *sys.argv[1:]], env={**os.environ, **job}, start_new_session=True)
    while process.poll() is None and not os.path.exists(f"{state}/training"):
        time.sleep(0.02)
    if process.poll() is None and start == 0:
        process.send_signal(getattr(signal, f"SIG{name}"))
    print("status", process.wait(), flush=True)
    if not os.path.exists(f"{state}/requeued"):
        break
    os.remove(f"{state}/requeued")
"""
SCONTROL = r"""
import os, sys
if sys.argv[1:] == ["show", "hostnames", "node[1-2]"]:
    print("localhost\nlocalhost")
elif sys.argv[1:] == ["requeue", "77"]:
    open(os.environ["FAKE_SLURM"] + "/requeued", "w")
else:
    sys.exit(f"scontrol: {sys.argv[1:]}")
"""
# Starts a task for each node, passes SIGUSR1 on to every process of the tasks (as SLURM signals their containers) or to
# the tasks alone, and kills the others when one fails.
SRUN = r"""
import os, signal, subprocess, sys, time
words = sys.argv[1:]
while words[0].startswith("--"):
    words = words[1:] if "=" in words[0] else words[2:]
tasks = [subprocess.Popen(words, start_new_session=True) for _ in range(2)]
def descendants(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [pid, *(one for child in map(int, listed.split()) for one in descendants(child))]
def pass_on(number, frame):
    for task in tasks:
        for pid in descendants(task.pid) if os.environ["FAKE_SIGNALS"] == "containers" else [task.pid]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # such as ps
signal.signal(signal.SIGUSR1, pass_on)
sys.exit(max(task.wait() for task in tasks))
"""
# In place of the interpreter: torchrun is real, the training is not.
PYTHON = """#!/bin/bash
exec {python} "${{@/fairseq_cli.train/fake_training}}"
"""
TRAINING = r"""
import os, signal, sys, time
state, rank = os.environ["FAKE_SLURM"], os.environ["RANK"]
def note(name, text=""):
    with open(f"{state}/{name}", "a") as file:
        file.write(text)
if os.path.exists(f"{state}/checkpoint"):
    note("finished", rank)
    sys.exit(0)
signal.signal(signal.SIGUSR1, lambda number, frame: note("asked"))
if rank == "1":
    note("training")  # both have started: torchrun waits for all nodes
while not os.path.exists(f"{state}/asked"):  # a signal to one stops all
    time.sleep(0.02)
if rank == "0":
    note("checkpoint")
while not os.path.exists(f"{state}/checkpoint"):
    time.sleep(0.02)
sys.exit(75)
"""
SCRIPT = f"""#!/usr/bin/env bash
set -euo pipefail
. {ROOT}/run_scripts/lib.sh
. {ROOT}/run_scripts/experiments.sh
options=()
prepare() {{ :; }}
train() {{ launch data --save-dir "$run_folder"; }}
read_table train
parse_options "$@"
run_experiments prepare
"""


@pytest.fixture
def scheduler(tmp_path):
    """A folder of fake programs; submits a job, returns its output and the files that its training has left."""
    programs = {"sbatch": SBATCH, "scontrol": SCONTROL, "srun": SRUN}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}")
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "experiments.txt").write_text("name nothing\nmine x\n")
    for name in (*programs, "run.sh"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "fake_training.py").write_text(TRAINING)
    state = tmp_path / "state"
    state.mkdir()
    fakes = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path), "FAKE_SLURM": str(state)}
    fakes["OMP_NUM_THREADS"] = "1"

    def submit(signals):
        # the real one: pass_on.sh finds a task's processes by their parents
        (tmp_path / "python").write_text(PYTHON.format(python=sys.executable))
        (tmp_path / "python").chmod(0o755)
        options = ["experiments=mine", f"python={tmp_path / 'python'}", f"out={tmp_path / 'out'}"]
        done = subprocess.run(
            [tmp_path / "sbatch", ROOT / "run_scripts" / "slurm.sh", tmp_path / "run.sh", *options],
            env={**os.environ, **fakes, "FAKE_SIGNALS": signals},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout, {path.name: path.read_text() for path in state.iterdir()}

    return submit


@pytest.mark.full
@pytest.mark.parametrize("signals", ["containers", "tasks"])
def test_a_job_saves_before_its_time_limit_and_finishes_when_requeued(scheduler, signals):
    output, left = scheduler(signals)
    statuses = [line for line in output.splitlines() if line.startswith("status ")]
    assert statuses == ["status 75", "status 0"], output
    assert "requeueing the job, which continues from its last checkpoint" in output
    assert sorted(left.pop("finished")) == ["0", "1"]
    assert left.keys() == {"asked", "training", "checkpoint"}


@pytest.mark.parametrize(("status", "wanted"), [(0, 0), (3, 3), (75, 75)])
def test_only_a_job_that_was_stopped_is_requeued(tmp_path, status, wanted):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\n[ "$1" = show ] && echo node1 || echo "$@" >> {tmp_path}/calls\n')
    scontrol.chmod(0o755)
    (tmp_path / "run.sh").write_text(f"exit {status}\n")
    job = {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "node1", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "1"}
    done = subprocess.run(
        ["bash", ROOT / "run_scripts" / "slurm.sh", tmp_path / "run.sh"],
        env={**os.environ, **job, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.returncode == wanted
    assert (tmp_path / "calls").exists() == (status == 75)

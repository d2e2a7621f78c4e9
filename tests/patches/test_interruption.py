"""Trainings that are killed, asked to stop, finished, or started twice: real processes of fairseq-train."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from fairseq_cli import train as fairseq_train

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import interruption
from fairseq_poolingformer.patches.interruption import STOPPED, lock, save_and_stop_when_asked
from tests.forked_python import PYTHON
from tests.patches.helpers import EXAMPLES, PACKAGE, TORCHRUN, TRAINING, launch, num_updates, run, train

fairseq_poolingformer.register()

UPDATES = 40


def command(corpus, save_dir, *extra):
    arguments = ["--user-dir", PACKAGE, *TRAINING, "--save-dir", save_dir, "--max-update", UPDATES, *extra]
    return ["fairseq_cli.train", corpus, *arguments, "--disable-validation", "--no-epoch-checkpoints"]


def start(corpus, save_dir, *extra):
    return launch(PYTHON, "-m", *command(corpus, save_dir, *extra))


def wait_for_an_update(process):
    next(line for line in process.stdout if "num_updates" in line)


def wait_for_a_checkpoint(process, path):
    while not path.exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)


def assert_bit_identical(*paths):
    states = [{name: load(path)[name] for name in ("model", "last_optimizer_state")} for path in paths]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    run(*command(corpus, folder), cwd=folder)
    return folder / "checkpoint_last.pt"


def test_kills_at_random_instants_change_nothing(corpus, uninterrupted, tmp_path):
    last, rng = tmp_path / "checkpoint_last.pt", random.Random(1)
    often = ("--save-interval-updates", 1, "--keep-interval-updates", 1)
    for _ in range(4):
        process = start(corpus, tmp_path, *often)
        wait_for_a_checkpoint(process, last)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        process.communicate()
        assert torch.load(last, weights_only=False)["model"]
    run(*command(corpus, tmp_path, *often), cwd=tmp_path)
    assert_bit_identical(last, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_stops_with_a_status_of_its_own(number, corpus, uninterrupted, tmp_path):
    process = start(corpus, tmp_path, "--max-update", 10**6, "--lr-scheduler", "fixed", "--log-interval", 1)
    wait_for_an_update(process)
    process.send_signal(number)
    output = process.communicate()[0]
    assert process.returncode == STOPPED, output
    assert f"{number.name}: saving a checkpoint" in output
    updates = num_updates(load(tmp_path / "checkpoint_last.pt"))
    assert f"stopped after {updates} updates, checkpoint saved" in output
    if updates < UPDATES:
        run(*command(corpus, tmp_path), cwd=tmp_path)
        assert_bit_identical(tmp_path / "checkpoint_last.pt", uninterrupted)


def test_a_finished_training_is_left_as_it_is(corpus, uninterrupted):
    before = uninterrupted.read_bytes()
    result = run(*command(corpus, uninterrupted.parent), cwd=uninterrupted.parent)
    assert f"the training is finished: it has {UPDATES} of --max-update {UPDATES} updates" in result.stdout
    assert uninterrupted.read_bytes() == before


def test_a_second_training_in_the_same_folder_is_refused(corpus, tmp_path):
    running = start(corpus, tmp_path, "--max-update", 10**6, "--save-interval-updates", 1, "--keep-interval-updates", 1)
    wait_for_a_checkpoint(running, tmp_path / "checkpoint_last.pt")
    second = run(*command(corpus, tmp_path), cwd=tmp_path, status=None)
    unsaved = ("--no-save", "--reset-optimizer", "--max-update", 1)
    unsaved = run(*command(corpus, tmp_path, *unsaved), cwd=tmp_path, status=None)
    running.kill()
    running.communicate()
    assert (second.returncode, unsaved.returncode) == (1, 0), unsaved.stderr
    assert "another training is running in this folder" in second.stderr
    run(*command(corpus, tmp_path, "--max-update", 1), cwd=tmp_path)  # the lock is gone


def test_a_signal_to_one_of_two_processes_stops_both(corpus, tmp_path):
    arguments = command(corpus, tmp_path, "--max-update", 10**6, "--log-interval", 1)
    process = launch(sys.executable, "-m", *TORCHRUN, *arguments, PYTHON_EXEC=PYTHON)  # of the processes that it starts
    wait_for_an_update(process)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    os.kill(max(int(pid) for pid in children.stdout.split()), signal.SIGUSR1)
    output = process.communicate(timeout=1200)[0]
    assert (tmp_path / "checkpoint_last.pt").exists(), output
    assert output.count("checkpoint saved; the same command continues from here") == 2, output


def test_the_lock_does_not_outlive_the_training_in_processes_that_read_data(tmp_path):
    program = (
        "import os, signal, sys, time\n"
        "from fairseq_poolingformer.patches.interruption import lock\n"
        "lock(sys.argv[1])\n"
        "if reader := os.fork():\n"
        "    print(reader, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    training = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    reader = int(training.stdout.readline())
    training.wait()
    try:
        lock(str(tmp_path))
    finally:
        os.kill(reader, signal.SIGKILL)
        os.close(interruption._locks.pop(tmp_path.resolve()))
        training.stdout.close()


def test_what_a_killed_training_left_half_written_is_removed(tmp_path):
    left = [f"{name}.pt.0f1e.unfinished" for name in ("checkpoint_last", "checkpoint_1_50-shard0", "checkpoint3")]
    others = ["checkpoint_last.pt", "checkpoint_average.pt.0f1e.unfinished", "notes.unfinished"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    lock(str(tmp_path))
    os.close(interruption._locks.pop(tmp_path.resolve()))
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", *others])


@pytest.fixture
def asked(monkeypatch):
    """A process that is asked to stop; yields what it does then."""
    done = []
    monkeypatch.setattr(interruption, "_asked", [signal.SIGTERM])
    monkeypatch.setattr("fairseq.checkpoint_utils.save_checkpoint", lambda *arguments: done.append("saved"))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: done.append("waited for the others"))
    return done


def stop(updates, most):
    cfg = SimpleNamespace(
        checkpoint=SimpleNamespace(patience=-1),
        lr_scheduler=SimpleNamespace(_name="fixed"),
        optimization=SimpleNamespace(max_update=most),
    )
    trainer = SimpleNamespace(get_num_updates=lambda: updates, data_parallel_world_size=1, device="cpu")
    return save_and_stop_when_asked(lambda *arguments: ([None], updates >= most > 0), cfg, trainer, None, None)


def test_processes_end_when_the_first_one_has_saved(asked):
    with pytest.raises(SystemExit):
        stop(updates=5, most=0)
    assert asked == ["saved", "waited for the others"]


def test_a_signal_during_the_last_update_does_not_skip_its_validation(asked):
    assert (stop(updates=10, most=10), asked) == (([None], True), [])


def train_until(monkeypatch, corpus, folder, updates, end, *extra):
    train_step = Trainer.train_step

    def step(self, *arguments, **named):
        result = train_step(self, *arguments, **named)
        if self.get_num_updates() == updates:
            end()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", step)
        return train(corpus, folder, *extra)


def ask():
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [ask, interrupt, lambda: None])
def test_a_process_handles_signals_as_before_a_training(corpus, tmp_path, monkeypatch, end):
    handlers = [signal.getsignal(number) for number in interruption.SIGNALS]
    with contextlib.suppress(SystemExit, KeyboardInterrupt):
        train_until(monkeypatch, corpus, tmp_path / "a", 2, end, "--max-update", 3, "--disable-validation")
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == handlers
    state = train(corpus, tmp_path / "b", "--max-epoch", 1, "--disable-validation")  # the next one is not stopped
    assert num_updates(state) == EXAMPLES["train"] / 4
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == handlers


def test_a_job_of_hydra_ends_with_the_former_handlers(corpus, tmp_path, monkeypatch):
    """For the first one fairseq's own ``main`` is called, since the plugin is imported within it."""
    handlers = [signal.getsignal(number) for number in interruption.SIGNALS]
    monkeypatch.setattr(fairseq_train, "main", fairseq_train.main.__wrapped__)
    trained = []
    least = ["--lr-scheduler", "fixed", "--force-anneal", 1, "--lr-shrink", 0.1, "--stop-min-lr", 0.005]
    monkeypatch.setattr(
        Trainer, "train_step", lambda *arguments, step=Trainer.train_step: trained.append(1) or step(*arguments)
    )
    train(corpus, tmp_path, *least, "--max-epoch", 3, "--disable-validation")
    assert len(trained) == EXAMPLES["train"] / 4  # the rate ended it, after an epoch
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == handlers


@pytest.mark.parametrize(
    ("updates", "extra"), [(6, ()), (4, ("--validate-interval-updates", 2, "--save-interval-updates", 4))]
)
def test_a_signal_before_a_validation_does_not_lose_it(corpus, tmp_path, monkeypatch, updates, extra):
    """Here an epoch has six updates."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of an earlier training
    with pytest.raises(SystemExit):
        train_until(monkeypatch, corpus, tmp_path, updates, ask, "--max-epoch", 2, *extra)
    losses = [load(tmp_path / f"checkpoint_{name}.pt")["extra_state"]["val_loss"] for name in ("last", "best")]
    assert losses[0] == losses[1] > 0
    assert num_updates(load(tmp_path / "checkpoint_last.pt")) == updates


PROCESSES = r"""
import os, signal, sys, torch
from fairseq_poolingformer.patches.interruption import STOPPED, pass_signals_on

def training(number):
    numbers = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    os.write(1, b"ready\n")  # in one piece
    signal.sigwait(numbers)
    os.write(1, b"saved\n")
    sys.exit(STOPPED)

if __name__ == "__main__":
    with pass_signals_on():
        torch.multiprocessing.spawn(training, nprocs=2)
"""


def test_a_signal_to_the_process_that_started_the_others_reaches_them(tmp_path):
    (tmp_path / "program.py").write_text(PROCESSES)
    process = launch(PYTHON, tmp_path / "program.py", PYTHONPATH=str(PACKAGE.parent))
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=1200)[0]  # torch may say which process it has ended
    assert (output.count("saved\n"), process.returncode) == (2, STOPPED)


def test_a_signal_ends_a_process_that_has_started_none():
    program = (
        "import os, signal\nfrom fairseq_poolingformer.patches.interruption import pass_signals_on\n"
        "with pass_signals_on():\n    os.kill(os.getpid(), signal.SIGTERM)\n    signal.pause()\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGTERM

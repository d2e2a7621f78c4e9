"""Commands that fail, and how a training is shown."""

import json
import os
import subprocess
import sys

import pytest

from fairseq_poolingformer.cli.finetune.processes import Commands, Progress, duration, follow


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import sys; print('x'); sys.exit('train.py: error: unrecognized arguments: --foo')",
            "^unrecognized .* --foo$",
        ),
        ("raise KeyError('deep')", "KeyError: 'deep'\nit ended with status 1; .*log has the rest"),
        ("import os; os.kill(os.getpid(), 9)", "memory runs out"),
        ("import sys; sys.exit(75)", "has saved a checkpoint; the same command continues"),
    ],
)
def test_the_reason_of_a_failure(tmp_path, code, message):
    with pytest.raises(ValueError, match=message):
        follow("it", [sys.executable, "-c", code], tmp_path / "log")


def test_a_long_command_is_a_line_of_a_file(tmp_path, capsys):
    commands, training = Commands(tmp_path), ("fairseq-train", tmp_path / "a b", "--lr", 1)
    assert commands.note(*training) == "fairseq-train"
    assert commands.note("poolingformer", "preprocess", "squad", "--data", "x") == "poolingformer preprocess squad"
    commands.note(*training)  # again, after a stop
    file = tmp_path / "commands.sh"
    assert file.read_text().splitlines()[1:] == [
        f"fairseq-train '{tmp_path}/a b' --lr 1",
        "poolingformer preprocess squad --data x",
    ]
    assert [line for line in capsys.readouterr().out.splitlines()[2:] if line] == [
        f"$ poolingformer preprocess squad …  (all of it: line 3 of {file})",
        f"$ fairseq-train …  (all of it: line 2 of {file})",
    ]


def test_memory_that_is_not_used_any_more_is_left_to_the_process(tmp_path):
    """On a CPU freed memory is kept, so that a command would hold a second model during its training."""
    log = tmp_path / "log"
    program = f"""if True:
        import resource, sys, torch
        from pathlib import Path
        from fairseq_poolingformer.attention import keep_freed_memory
        from fairseq_poolingformer.cli.finetune.processes import follow

        def mebibytes():
            return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

        kept = keep_freed_memory()
        before = mebibytes()
        model = [torch.ones(2**20) for _ in range(64)]
        del model
        freed = mebibytes()
        follow("it", [sys.executable, "-c", ""], Path({str(log)!r}))
        print(int(kept), freed - before, mebibytes() - before)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    kept, freed, left = map(int, done.stdout.split())
    if not kept:
        pytest.skip("the C library is not glibc")
    assert freed > 200
    assert left < 50


def test_output_and_log_are_apart(tmp_path):
    code = "import sys; print('figures'); print('remarks', file=sys.stderr)"
    lines = []
    with open(tmp_path / "output", "w") as output:
        follow("it", [sys.executable, "-c", code], tmp_path / "log", lines.append, output)
    assert lines == ["figures"]
    assert [(tmp_path / name).read_text() for name in ("output", "log")] == ["figures\n", "remarks\n"]


def test_progress(capsys, monkeypatch):
    now = iter([0.0, 30.0, 31.0, 60.0])
    monkeypatch.setattr("fairseq_poolingformer.cli.finetune.processes.time.monotonic", lambda: next(now))
    progress = Progress(total=40)
    progress._shown = -100.0
    progress.take_training("2026-01-01 | INFO | fairseq.trainer | begin training epoch 1")
    for update in (10, 20, 21, 40):
        values = {"epoch": 1, "num_updates": str(update), "loss": "5.5"}
        progress.take_training(f"2026-01-01 | INFO | train_inner | {json.dumps(values)}")
    progress.take_training('2026-01-01 | INFO | valid | {"epoch": 1, "valid_loss": "5.1", "valid_accuracy": "0.5"}')
    assert capsys.readouterr().out.splitlines() == [
        "  update 10 of 40: loss 5.5",
        "  update 20 of 40: loss 5.5, about 60 seconds left",
        "  update 40 of 40: loss 5.5",
        "  epoch 1, validation: loss 5.1, accuracy 0.5",
    ]


def test_a_million_updates_are_logged_with_an_exponent(capsys):
    Progress(total=2_000_000).take_training('2026-01-01 | INFO | train_inner | {"num_updates": "1e+06", "loss": "5"}')
    assert capsys.readouterr().out == "  update 1000000 of 2000000: loss 5\n"


def test_summaries_are_counted_while_they_are_written(capsys, monkeypatch):
    now = iter([0.0, 30.0, 60.0])
    monkeypatch.setattr("fairseq_poolingformer.cli.finetune.processes.time.monotonic", lambda: next(now))
    generated = Progress(total=3)
    generated._shown = -100.0
    for line in ("2026-01-01 | INFO | loading", "H-1\t-0.5\ta", "D-1\t-0.5\ta", "H-0\t-0.5\tb", "H-2\t-0.5\tc"):
        generated.take_summary(line)
    assert capsys.readouterr().out.splitlines() == [
        "  1 of 3 summaries",
        "  2 of 3 summaries, about 30 seconds left",
        "  3 of 3 summaries",
    ]


def test_durations():
    assert [duration(seconds) for seconds in (0.2, 80, 1000, 7200)] == [
        "1 seconds",
        "80 seconds",
        "17 minutes",
        "2.0 hours",
    ]

"""Runs the commands of a job: writes them down, shows how a training goes on, and stops them as the user asks."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import IO

from fairseq_poolingformer.attention.freed_memory import return_freed_memory
from fairseq_poolingformer.patches.long_jobs.interruption import STOPPED
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines

MODULES = {  # of the programs that a user types
    "poolingformer": "fairseq_poolingformer.cli.main",
    "fairseq-train": "fairseq_cli.train",
    "fairseq-generate": "fairseq_cli.generate",
}
TAIL = 15  # lines shown of a command that failed
PAUSE = 20.0  # seconds between two lines about a training


class Commands:
    """The commands of a job, which are also written to ``commands.sh``, in their order."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "commands.sh"
        first = f"set -e; cd {shlex.quote(str(Path.cwd()))}"  # from where relative paths count
        self._lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.is_file() else [first]

    def note(self, *words: object, output: str = "") -> str:
        """Write a command, and print where; return its name."""
        line = shlex.join(map(str, words)) + (f" > {shlex.quote(str(self._folder / output))}" if output else "")
        if line not in self._lines:
            self._lines.append(line)
            write_lines(self._file, self._lines)
        name = " ".join(takewhile(re.compile(r"[a-z]\w*(-\w+)*").fullmatch, map(str, words)))
        print(f"\n$ {name} …  (all of it: line {self._lines.index(line) + 1} of {self._file})", flush=True)
        return name

    def run(self, *words: object, output: str = "", take: Callable[[str], None] | None = None) -> None:
        """Run a command until it ends; ``take`` gets each line of its output, or of what it says.

        What it writes goes to the file ``output`` of the folder, what it says beside to ``NAME.log``.
        """
        name = self.note(*words, output=output)
        command = [sys.executable, "-m", MODULES[str(words[0])], *map(str, words[1:])]
        log = self._folder / f"{words[0]}.log" if take or output else None
        if not output:
            follow(name, command, log, take)
            return
        with atomic_write(self._folder / output) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
            follow(name, command, log, take, file)


def follow(
    name: str,
    command: Sequence[str],
    log: Path | None,
    take: Callable[[str], None] | None = None,
    output: IO[str] | None = None,
) -> None:
    """Run a process until it ends; an interruption asks it to save and stop, a second one ends it.

    What it says goes to ``log``, or is shown where that is None; ``take`` gets each line of the output, or else of the
    log.
    """
    sys.stdout.flush()
    return_freed_memory()  # a model was read here, and the process needs its place
    with _terminated_as_interrupted(), open(log or os.devnull, "a", encoding="utf-8") as said:
        streams = {"stdout": subprocess.PIPE, "stderr": said if output else subprocess.STDOUT}
        process = subprocess.Popen(
            command,
            text=True,
            errors="replace",
            start_new_session=True,  # so that Ctrl-C is not its end before it has saved
            preexec_fn=_end_with_parent,
            **(streams if log else {}),
        )
        try:
            for line in process.stdout or ():
                (output or said).write(line)
                (output or said).flush()
                if take:
                    take(line.rstrip("\n"))
            process.wait()
        except KeyboardInterrupt:
            print("\nstopping; what is done is kept, and a training saves first (interrupt again: at once)", flush=True)
            process.terminate()
            try:
                (output or said).writelines(process.stdout or ())
                process.wait()
            except KeyboardInterrupt:
                process.kill()
            raise
    if process.returncode:
        raise ValueError(_reason(name, process.returncode, log))


def _reason(name: str, status: int, log: Path | None) -> str:
    if status == STOPPED:
        return f"{name} was stopped and has saved a checkpoint; the same command continues"
    if status == -signal.SIGKILL:
        return f"{name} was killed, which is what happens where memory runs out; the same command continues"
    if not log:
        return f"{name} ended with status {status}, as it says above"
    with open(log, encoding="utf-8", errors="replace") as lines:
        tail = [line.rstrip("\n") for line in deque(lines, maxlen=TAIL)]
    said = next((line.partition("error: ")[2] for line in reversed(tail) if "error: " in line), None)
    return said or "\n".join([*tail, f"{name} ended with status {status}; {log} has the rest"])


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_with_parent() -> None:
    """Have Linux end this new process when the one that started it ends, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Progress:
    """Shows how something goes on that is done in ``total`` parts, by the lines of a log or an output."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._first: tuple[int, float] | None = None
        self._shown = 0.0

    def take_training(self, line: str) -> None:
        """Take a line that fairseq-train logs."""
        *_, kind, values = ["", *line.split(" | ")][-2:]
        if kind not in ("train_inner", "valid") or not values.startswith("{"):
            return
        found = json.loads(values)
        if kind == "valid":
            names = (name for name in ("loss", "accuracy", "f1", "mse") if f"valid_{name}" in found)
            figures = [f"{name} {found[f'valid_{name}']}" for name in names]
            print(f"  epoch {found['epoch']}, validation: {', '.join(figures)}", flush=True)
            return
        self._done = int(float(found["num_updates"]))  # 1e+06, too
        self._show(f"update {self._done} of {self._total}: loss {found['loss']}")

    def take_summary(self, line: str) -> None:
        """Take a line that fairseq-generate writes."""
        if line.startswith("H-"):
            self._done += 1
            self._show(f"{self._done:,} of {self._total:,} summaries")

    def _show(self, text: str) -> None:
        """Print a line about what is done, unless there was one a moment ago."""
        done, now = self._done, time.monotonic()
        self._first = self._first or (done, now)
        if now - self._shown < PAUSE and done < self._total:
            return
        self._shown = now
        before, begin = self._first
        left = (now - begin) / max(1, done - before) * (self._total - done)
        print(f"  {text}" + (f", about {duration(left)} left" if done > before and left else ""), flush=True)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 100:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"

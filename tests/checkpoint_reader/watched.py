"""Functions run in a process that is watched: its memory, its time, and what it opens, imports, starts and calls.

One process does many cases; when it dies, the case that it was at is the one that it died of, and another goes on.
"""

import contextlib
import functools
import multiprocessing
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

# Events of Python that a reader has no reason for. Reading files and importing Python's own modules is looked at below.
EVENTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rename")
EVENTS += ("os.rmdir", "os.truncate", "os.chmod", "os.link", "os.symlink", "shutil.", "pickle.find_class", "exec")
EVENTS += ("compile", "ctypes.", "urllib.", "webbrowser.", "ftplib.", "http.")


class Outcome(NamedTuple):
    """What a function did with a case.

    Attributes:
        value: what it returned as text, or the message of its error.
        error: the name of the error's class; None where it returned.
        events: what it touched.
        died: how the process ended; None where it went on.
    """

    value: str | None = None
    error: str | None = None
    events: tuple[str, ...] = ()
    died: str | None = None


def watched(
    function: Callable[[Any], Any],
    cases: Sequence[Any],
    *,
    seconds: int,
    memory: int,
    make: Callable[[Any], Any] = lambda case: case,
    use: Callable[[Any], Any] = repr,
    own: str = "\0",
) -> list[Outcome]:
    """Call a function with each case in processes of their own.

    Args:
        function: its argument is what ``make`` makes of a case.
        cases: what to make arguments of.
        seconds: of the processor's time, the longest that a case may take; it may wait 15 times as long.
        memory: bytes that the process may take beyond what it has at the start.
        make, use: of an argument, and of what the function returns; what they touch is not looked at.
        own: a folder in which the function may write.
    """
    outcomes: list[Outcome] = []
    context = multiprocessing.get_context("fork")
    while len(outcomes) < len(cases):
        receiving, sending = context.Pipe(duplex=False)
        rest = [(functools.partial(make, case), function, use) for case in cases[len(outcomes) :]]
        process = context.Process(target=_work, args=(rest, seconds, memory, own, sending))
        process.start()
        sending.close()
        with contextlib.suppress(EOFError):
            while len(outcomes) < len(cases):
                outcomes.append(Outcome(*pickle.loads(receiving.recv_bytes())))
        process.join()
        if process.exitcode:
            name = signal.Signals(-process.exitcode).name if process.exitcode < 0 else f"status {process.exitcode}"
            outcomes.append(Outcome(died="a hang" if name in ("SIGALRM", "SIGPROF") else name))
    return outcomes


def _work(cases: Sequence[tuple], seconds: int, memory: int, own: str, sending: Connection) -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    seen: list[str] | None = None

    def look(event: str, arguments: tuple) -> None:
        if seen is not None and (found := _noteworthy(event, arguments, own)):
            seen.append(found)

    sys.addaudithook(look)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    for make, function, use in cases:
        argument = make()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(15 * seconds)
        events: list[str] = []
        seen = events
        try:
            value = function(argument)
            seen = None
            outcome = (str(use(value))[:3000], None)
        except Exception as error:  # every kind of error is a finding
            outcome = (str(error)[:3000], type(error).__name__)
        seen = None
        sending.send_bytes(pickle.dumps((*outcome, tuple(events))))
    os._exit(0)


def _noteworthy(event: str, arguments: tuple, own: str) -> str | None:
    if event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else "r" not in (mode or "r")
        return f"open {path}" if writes and not str(path).startswith(own) else None
    if event == "import":
        return f"import {arguments[0]}"
    if event in ("os.remove", "os.rmdir") and arguments[-1] != -1:
        return None  # within a folder that shutil.rmtree removes, which tells of itself
    if event.startswith(EVENTS) and not any(str(argument).startswith(own) for argument in arguments):
        return f"{event} {str(arguments)[:200]}"
    return None


def assert_harmless(outcomes: Sequence[Outcome], errors: tuple[str, ...]) -> None:
    """Each outcome is a value, or one of these errors with a sentence; nothing was touched and nothing died."""
    for number, outcome in enumerate(outcomes):
        assert outcome.died is None, (number, outcome)
        assert outcome.events == (), (number, outcome)
        assert outcome.error is None or outcome.error in errors, (number, outcome)
        if outcome.error is not None:
            assert outcome.value.isprintable(), (number, outcome)
            assert 10 < len(outcome.value) < 1500, (number, outcome)

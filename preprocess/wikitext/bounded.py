"""Cleans pages in a process of its own, within bounds of time and memory.

The parser is C code: it does not return for a signal handler and does not give back its memory. The kernel therefore
ends the whole process at the bound, and the next page starts another one. The time is CPU time, which hardly depends on
the machine's other work.
"""

import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO

from mwparserfromhell.parser import ParserError

from .text import plain_text

MIN_MEMORY = 256  # MiB, for the parser itself and an ordinary page

_OUT_OF_MEMORY = 3  # exit status

# imports from where this process does; python -m would look into the working directory first
_START = """import sys
sys.path[:] = sys.argv[4:]
from importlib import import_module
import_module(sys.argv[1]).serve(float(sys.argv[2]), int(sys.argv[3]))"""


class PageTooHard(ValueError):
    """The page cannot be cleaned within the bounds; the message says why."""


@dataclass(frozen=True)
class Bounds:
    """The CPU seconds that a page may take, and the MiB that the whole process may have."""

    seconds: float = 20
    memory: int = 2048


def clean(wikitext: str, options: dict[str, object], bounds: Bounds) -> str:
    """Call :func:`plain_text` with these options, within bounds."""
    return _cleaner(os.getpid(), bounds).clean(wikitext, options)


@functools.lru_cache(maxsize=1)
def _cleaner(process: int, bounds: Bounds) -> "_Cleaner":
    """The cleaner of this process; a forked process must not share its parent's."""
    return _Cleaner(bounds)


class _Cleaner:
    """A process that cleans one page after another until its input ends."""

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        self._process: subprocess.Popen | None = None

    def clean(self, wikitext: str, options: dict[str, object]) -> str:
        if self._process is None:
            self._process = self._start()
        try:
            pickle.dump((wikitext, options), self._process.stdin)
            self._process.stdin.flush()
            cleaned, error = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise PageTooHard(self._end()) from None
        except KeyboardInterrupt:  # half a request may be written, and no other can follow it
            self._process.kill()
            self._end()
            raise
        if error is not None:
            raise PageTooHard(error)
        return cleaned

    def _start(self) -> subprocess.Popen:
        command = [
            sys.executable,
            "-c",
            _START,
            __name__,
            str(self._bounds.seconds),
            str(self._bounds.memory),
            *sys.path,
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _end(self) -> str:
        """Wait for the end of the process and say why it ended."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        status = self._process.wait()
        self._process = None
        if status == -signal.SIGPROF:
            return f"page takes too long: more than {self._bounds.seconds:g} seconds of CPU time to parse"
        if status == _OUT_OF_MEMORY:
            return f"page takes too much memory: more than {self._bounds.memory} MiB to parse"
        return f"page breaks the parser: it ended with status {status}"


def serve(seconds: float, memory: int) -> None:
    """Answer requests on standard input until it ends; see :class:`Bounds`."""
    import resource  # some systems lack it, and only this process needs it

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, in C code too
    resource.setrlimit(resource.RLIMIT_AS, (memory * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(BrokenPipeError):
        _answer(sys.stdin.buffer, sys.stdout.buffer, seconds)


def _answer(requests: BufferedReader, answers: BinaryIO, seconds: float) -> None:
    while requests.peek(1):
        wikitext, options = pickle.load(requests)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = plain_text(wikitext, **options), None
        except (ParserError, RecursionError) as error:
            answer = None, f"page breaks the parser: {error}"
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)  # a traceback would need memory
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(answer, answers)
        answers.flush()

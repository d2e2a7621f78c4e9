"""Cleans pages in a process of its own, which may take only so much time and memory for a page.

A parser in C neither returns for a signal handler nor gives back what it took, so the process is ended, by the kernel,
and another one started. Time is CPU time, so that it hardly depends on what else the machine does.
"""

import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass

from mwparserfromhell.parser import ParserError

from preprocess.wikitext.text import plain_text

MIN_MEMORY = 256  # MiB, for the parser itself and an ordinary page

_OUT_OF_MEMORY = 3  # exit status


class PageTooHard(ValueError):
    """Why a page could not be cleaned."""


@dataclass(frozen=True)
class Bounds:
    """What one page may take: CPU seconds, and MiB of memory in the whole process."""

    seconds: float = 20
    memory: int = 2048


def clean(wikitext: str, options: dict[str, object], bounds: Bounds) -> str:
    """What :func:`plain_text` gives with these options, within bounds.

    Raises:
        PageTooHard: it takes more, or the parser fails.
    """
    return _cleaner(os.getpid(), bounds).clean(wikitext, options)


@functools.lru_cache(maxsize=1)
def _cleaner(process: int, bounds: Bounds) -> "_Cleaner":
    """The cleaner of this process: a forked one must not share that of its parent."""
    return _Cleaner(bounds)


class _Cleaner:
    """A process that cleans one page after another; it ends when its input does."""

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        self._process: subprocess.Popen | None = None

    def clean(self, wikitext: str, options: dict[str, object]) -> str:
        if self._process is None:
            self._process = self._start()
        try:
            pickle.dump((wikitext, options), self._process.stdin)
            self._process.stdin.flush()
            text, error = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise PageTooHard(self._end()) from None
        except KeyboardInterrupt:  # half a request may be written, which nothing can follow
            self._process.kill()
            self._end()
            raise
        if error is not None:
            raise PageTooHard(error)
        return text

    def _start(self) -> subprocess.Popen:
        command = [sys.executable, "-m", __name__, str(self._bounds.seconds), str(self._bounds.memory)]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def _end(self) -> str:
        """Why the process is no more."""
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


def _serve(bounds: Bounds) -> None:
    """Answers requests on standard input until there are no more."""
    import resource  # not everywhere, and only the process that cleans needs it

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which is to end the process, in C code too
    resource.setrlimit(resource.RLIMIT_AS, (bounds.memory * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while requests.peek(1):
        wikitext, options = pickle.load(requests)
        signal.setitimer(signal.ITIMER_PROF, bounds.seconds)
        try:
            answer = plain_text(wikitext, **options), None
        except (ParserError, RecursionError) as error:
            answer = None, f"page breaks the parser: {error}"
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)  # not into a traceback, which needs memory
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _serve(Bounds(float(sys.argv[1]), int(sys.argv[2])))

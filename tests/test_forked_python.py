"""The Python of ``tests/forked_python`` is seen from outside as the real one is."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forked_python
from tests.forked_python import PYTHON


@pytest.fixture
def program(tmp_path):
    """Writes a program; its file."""
    forked_python.start()

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(f"import os, signal, sys, time\n{text}\n")
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "print(sys.argv, sys.path[0], os.getcwd(), os.environ['NAME'], __name__)",
        "print('fairseq_poolingformer' in sys.modules)",
        "print(sys.stdin.read())\nsys.exit(3)",
        "sys.exit('text')",
        "print('printed')\nraise ValueError('raised')",
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_streams_and_status(program, text, tmp_path):
    seen = []
    for python in (PYTHON, sys.executable):
        done = subprocess.run(
            [python, program(text), "-x", "a b"],
            cwd=tmp_path,
            env={**os.environ, "NAME": "value"},
            input="given",
            capture_output=True,
            text=True,
        )
        seen.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
    assert seen[0] == seen[1]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the real Python is used")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL])
def test_signals_reach_the_process(program, number):
    text = "print(os.getpid(), flush=True)\nsignal.sigwait([signal.SIGUSR1])\nsys.exit(5)"
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
    with subprocess.Popen([PYTHON, program(blocked + text)], stdout=subprocess.PIPE, text=True) as process:
        forked = int(process.stdout.readline())
        assert forked != process.pid
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == (5 if number == signal.SIGUSR1 else -number)
    with pytest.raises(ProcessLookupError):
        os.kill(forked, 0)

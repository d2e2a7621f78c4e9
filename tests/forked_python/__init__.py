"""A Python whose processes have torch and fairseq already: tests start hundreds, and the imports take four seconds.

``PYTHON`` is called as Python is. A server forks a process that runs the module or the file; ``PYTHON`` passes signals
on to it and ends as it does (``client.py``, ``server.py``). Other command lines, and all while no server was started,
run in the real Python. The plugin is not imported beforehand: each process loads it by itself, as a user's does.
"""

import atexit
import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDER = Path(tempfile.mkdtemp(prefix="forked-python-"))
_SOCKET = _FOLDER / "socket"
PYTHON = str(_FOLDER / "python")


def remove() -> None:
    """Remove the folder of ``PYTHON``."""
    shutil.rmtree(_FOLDER, ignore_errors=True)


atexit.register(remove)
_client = shlex.join([sys.executable, "-SE", str(_HERE / "client.py"), str(_SOCKET), sys.executable])
Path(PYTHON).write_text(f'#!/bin/sh\nexec {_client} "$@"\n')
Path(PYTHON).chmod(0o755)


@functools.cache
def start() -> None:
    """Have a server for ``PYTHON`` until this process ends, where the system knows what it needs, as Linux does."""
    if not hasattr(os, "pidfd_open"):
        return
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with socket.socket(socket.AF_UNIX) as listener:  # here, so that those who ask too early wait for an answer
        listener.bind(str(_SOCKET))
        listener.listen()
        command = [sys.executable, _HERE / "server.py", str(listener.fileno()), PYTHON]
        server = subprocess.Popen(
            command,
            env={**environment, "OMP_NUM_THREADS": "1"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # fairseq logs while it is imported
        )
    atexit.register(server.stdin.close)  # which ends it

"""``server.py DESCRIPTOR PYTHON``: import torch and fairseq, then fork a process for every request to a socket."""

import atexit
import fcntl
import gc
import json
import logging
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress


def serve(descriptor: int) -> tuple[dict, list[int]]:
    """Answer requests until the input ends; returns in each new process, with its request and standard streams."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that mind the others
    with socket.socket(fileno=descriptor) as listener:
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                os._exit(0)
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 64)
    with connection, connection.makefile() as lines:
        request = json.loads(lines.readline())
        process = os.fork()
        if process:
            mind(process, connection)
    return request, streams


def mind(process: int, client: socket.socket) -> None:
    """Tell a client how its process ends; where the client was killed, kill the process."""
    ended = os.pidfd_open(process)
    with suppress(BrokenPipeError):
        client.sendall(f"{process}\n".encode())
    if ended not in select.select([client, ended], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    with suppress(BrokenPipeError):
        client.sendall(f"{status}\n".encode())
    os._exit(0)


def take_on(request: dict, streams: list[int], python: str) -> None:
    """Make this process what Python would have made of the same command line, up to the first import."""
    moved = [fcntl.fcntl(stream, fcntl.F_DUPFD, 100) for stream in streams]  # away from where others are to be
    for stream in streams:
        os.close(stream)
    for stream, number in zip(moved, request["descriptors"], strict=True):
        os.dup2(stream, number)
        os.close(stream)
    if request["unbuffered"]:
        sys.stdout.reconfigure(line_buffering=True)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.executable = python  # for the processes that it starts
    multiprocessing.set_executable(python)
    words = request["words"]
    added = [word for word in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if word]
    folder = request["folder"] if words[0] in ("-m", "-c") else os.path.dirname(os.path.abspath(words[0]))
    sys.path[:1] = [folder, *added]
    sys.argv = {"-m": words[1:], "-c": ["-c", *words[2:]]}.get(words[0], words)


def run(words: list[str]) -> int:
    """Run ``-m MODULE …``, ``-c CODE …`` or ``FILE …``; its status."""
    try:
        if words[0] == "-m":
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            exec(words[1], vars(sys.modules["__main__"]))
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return int(stop.code is not None) if isinstance(stop.code, str | None) else stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(status: int) -> None:
    """End as Python does, but leave all objects alone: to delete them one by one takes a second."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    import fairseq  # noqa: F401
    import torch._dynamo  # which optimizers import
    import torch.distributed.fsdp
    import torch.distributed.run
    import torch.distributed.tensor  # noqa: F401

    with suppress(ImportError):
        import triton  # noqa: F401
    with suppress(ImportError):
        import transformers.modeling_utils  # noqa: F401
    logging.basicConfig(handlers=[], level=logging.WARNING, force=True)  # as it was before fairseq configured it
    gc.freeze()  # or the first collection of each process would copy all memory
    request, streams = serve(int(sys.argv[1]))
    take_on(request, streams, sys.argv[2])
    end(run(request["words"]))

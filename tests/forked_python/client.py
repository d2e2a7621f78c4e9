"""``client.py SOCKET PYTHON …``: have the server run ``…``, and be what the caller sees of that process."""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main(address: str, real: str, *command: str) -> None:
    """Run a command line of Python and end with its status, or by its signal."""
    unbuffered = command[:1] == ("-u",)
    words = command[unbuffered:]
    spawned = words[-1:] == ("--multiprocessing-fork",)  # after options, "-c" and the code
    words = words[words.index("-c") :] if spawned else words
    descriptors = [number for number in range(64) if number < 3 or (spawned and is_open(number))]
    server = socket.socket(socket.AF_UNIX)
    try:
        if not words or (words[0] != "-m" and words[0].startswith("-") and not spawned):
            raise ConnectionError("no module, no file and no process of multiprocessing")
        server.connect(address)
    except OSError:
        os.execv(real, [real, *command])
    unbuffered |= "PYTHONUNBUFFERED" in os.environ
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "unbuffered": unbuffered}
    request["descriptors"] = descriptors
    socket.send_fds(server, [b"\0"], descriptors)
    server.sendall(json.dumps(request).encode() + b"\n")
    answers = server.makefile()
    process = int(answers.readline())
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(process, number))
    status = os.waitstatus_to_exitcode(int(answers.readline()))
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Locks of folders: one process at a time."""

import contextlib
import errno
import os
import signal

import pytest

from fairseq_poolingformer.text import folder_lock
from fairseq_poolingformer.text.folder_lock import lock_folder


@contextlib.contextmanager
def locked_elsewhere(folder):
    """Within the block, another process holds the lock of a folder; then it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    ready, tell = os.pipe()
    if not (child := os.fork()):
        lock_folder(folder)
        os.write(tell, b"x")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"x"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)


def test_one_process_at_a_time(tmp_path):
    with locked_elsewhere(tmp_path), pytest.raises(BlockingIOError):
        lock_folder(tmp_path)
    os.close(lock_folder(tmp_path))
    with locked_elsewhere(tmp_path):
        pass


@pytest.mark.parametrize(("number", "goes_on"), [(errno.ENOLCK, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_without_locks_is_warned_of(number, goes_on, tmp_path, monkeypatch, caplog):
    def lockf(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_lock.fcntl, "lockf", lockf)
    if goes_on:
        assert lock_folder(tmp_path) is None
        assert "cannot be locked on its file system" in caplog.text
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            lock_folder(tmp_path)

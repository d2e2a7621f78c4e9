import contextlib
import errno
import os
import re
import resource
import signal

import pytest
import torch

from fairseq_poolingformer.text import atomic_write as atomic_write_module
from fairseq_poolingformer.text.atomic_write import (
    atomic_write,
    lock_folder,
    unfinished_name,
    write_lines,
)


@pytest.mark.parametrize("flush", [True, False])
def test_a_block_that_fails_leaves_the_former_file_alone(tmp_path, flush):
    for name in ("x" * 255, "ü" * 127):  # as long as the disk allows
        path = tmp_path / name
        write_lines(path, ["one"])
        with contextlib.suppress(RuntimeError), atomic_write(path, flush) as unfinished:
            unfinished.write_text("half")
            raise RuntimeError
        assert (path.read_text(), os.listdir(tmp_path)) == ("one\n", [name])
        path.unlink()


def test_what_a_killed_process_left_is_removed_and_not_written_into(tmp_path):
    (tmp_path / "other").write_text("good\n")
    if not (child := os.fork()):
        os.link(tmp_path / "other", unfinished_name(tmp_path / "x"))
        os._exit(0)
    os.waitpid(child, 0)
    os.link(tmp_path / "other", unfinished_name(tmp_path / "x"))
    write_lines(tmp_path / "x", ["new"])
    assert (tmp_path / "other").read_text() == "good\n"
    assert (tmp_path / "x").read_text() == "new\n"
    assert sorted(os.listdir(tmp_path)) == ["other", "x"]


def test_two_processes_write_one_name_and_each_file_is_whole(tmp_path):
    with atomic_write(tmp_path / "x") as mine:
        mine.write_text("mine")
        if not (child := os.fork()):
            write_lines(tmp_path / "x", ["theirs"])
            os._exit(0)
        os.waitpid(child, 0)
        assert (tmp_path / "x").read_text() == "theirs\n"
    assert (tmp_path / "x").read_text() == "mine"


def test_a_full_disk_is_an_error_with_the_name_of_the_file(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=re.escape(f"File too large: '{tmp_path / 'x'}'")):
            write_lines(tmp_path / "x", ["word"] * 10_000)
        message = rf"could not be written .*{re.escape(str(tmp_path / 'y'))}'$"
        with pytest.raises(OSError, match=message), atomic_write(tmp_path / "y") as unfinished:
            torch.save({"w": torch.zeros(10_000)}, unfinished)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_one_process_at_a_time(tmp_path):
    """Another process holds the lock of the folder; then it is killed."""
    ready, tell = os.pipe()
    if not (child := os.fork()):
        lock_folder(tmp_path)
        os.write(tell, b"x")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"x"
        with pytest.raises(BlockingIOError):
            lock_folder(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(lock_folder(tmp_path))


@pytest.mark.parametrize(("number", "goes_on"), [(errno.ENOLCK, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_without_locks_is_warned_of(number, goes_on, tmp_path, monkeypatch, caplog):
    def lockf(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(atomic_write_module.fcntl, "lockf", lockf)
    with contextlib.nullcontext() if goes_on else pytest.raises(OSError, match=os.strerror(number)):
        assert lock_folder(tmp_path) is None
    assert ("cannot be locked on its file system" in caplog.text) == goes_on

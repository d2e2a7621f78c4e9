import contextlib
import errno
import os
import re
import resource
import signal
import time

import pytest
import torch

from fairseq_poolingformer.text import atomic_write as atomic_write_module
from fairseq_poolingformer.text.atomic_write import ABANDONED, atomic_write, lock_folder, write_lines


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


def test_a_file_that_is_written_twice_at_once_has_two_names_and_the_mode_of_other_files(tmp_path):
    """As two containers write it whose processes have one number; a name may become a link, so it is not there."""
    (tmp_path / "other").write_text("good\n")
    with atomic_write(tmp_path / "x") as first, atomic_write(tmp_path / "x") as second:
        assert not first.exists()
        os.link(tmp_path / "other", first)
        second.write_text("new\n")
    assert (tmp_path / "x").read_text() == "good\n"
    assert os.stat(tmp_path / "x").st_nlink == 2
    write_lines(tmp_path / "x", ["new"])
    assert (tmp_path / "other").read_text() == "good\n"
    assert os.stat(tmp_path / "x").st_mode == os.stat(tmp_path / "other").st_mode
    assert sorted(os.listdir(tmp_path)) == ["other", "x"]


def test_what_nobody_has_written_to_for_a_day_is_removed(tmp_path, monkeypatch):
    """By the clock of the file system: this machine's may be a week ahead."""
    now, week = time.time(), 7 * ABANDONED
    monkeypatch.setattr(time, "time", lambda: now + week)
    ages = {"a.1.unfinished": 2 * ABANDONED, "b.host-1.unfinished": 60, "c": week, "d.1.unfinished": week}
    for name, age in ages.items():
        (tmp_path / name).mkdir() if name.startswith("d") else (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    write_lines(tmp_path / "x", ["new"])
    assert sorted(os.listdir(tmp_path)) == ["b.host-1.unfinished", "c", "d.1.unfinished", "x"]


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

"""Files that appear whole under their names; locks of folders: one process at a time."""

import contextlib
import errno
import os
import signal

import pytest

from fairseq_poolingformer.text import whole_file as whole_file_module
from fairseq_poolingformer.text.whole_file import SUFFIX, lock_folder, whole_file, write_lines


@pytest.mark.parametrize("flush", [True, False])
def test_a_block_that_fails_leaves_the_former_file_alone(tmp_path, flush):
    path = tmp_path / "x"
    write_lines(path, ["one"])
    with contextlib.suppress(RuntimeError), whole_file(path, flush) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert (path.read_text(), os.listdir(tmp_path)) == ("one\n", ["x"])


def test_what_a_killed_process_left_is_not_written_into(tmp_path):
    """It may be a link to a checkpoint."""
    write_lines(tmp_path / "other", ["good"])
    os.link(tmp_path / "other", tmp_path / f"x{SUFFIX}")
    write_lines(tmp_path / "x", ["new"])
    assert (tmp_path / "other").read_text() == "good\n"
    assert (tmp_path / "x").read_text() == "new\n"


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

    monkeypatch.setattr(whole_file_module.fcntl, "lockf", lockf)
    if goes_on:
        assert lock_folder(tmp_path) is None
        assert "cannot be locked on its file system" in caplog.text
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            lock_folder(tmp_path)

"""Lines of progress in a log, by a clock that the test moves."""

import logging
import sys
import time

import pytest

from preprocess.pipeline import parts, progress


@pytest.fixture
def clock(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])

    def wait(number):
        seconds[0] += number

    return wait


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "preprocess")
    return caplog


def test_a_line_every_half_minute(clock, lines):
    with progress.progress("train", 10**12) as advance:
        for _ in range(120):
            clock(1)
            advance(10**6)
    assert lines.messages[0] == "train: 30 MB in 30 s, 1.0 MB/s; 0 %, about 999,970 s left"
    assert len(lines.messages) == 4


def test_a_line_at_each_tenth(clock, lines):
    with progress.progress("train", 500 * 10**6) as advance:
        for _ in range(125):
            clock(0.4)
            advance(4 * 10**6)
    assert [line.split("; ")[1].split(" %")[0] for line in lines.messages] == [str(10 * n) for n in range(1, 11)]
    assert lines.messages[3] == "train: 200 MB in 20 s, 10.0 MB/s; 40 %, about 30 s left"


def test_no_lines_in_a_second_and_none_of_shares_that_are_not_known(clock, lines):
    with progress.progress("train", 100) as advance:
        for _ in range(100):
            clock(0.02)
            advance(1)
    assert not lines.messages
    for total in (None, 0):
        with progress.progress("text", total) as advance:
            clock(31)
            advance(31 * 10**6)
    assert lines.messages == ["text: 31 MB in 31 s, 1.0 MB/s"] * 2


def test_a_bar_on_a_terminal(clock, lines, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.progress("train", 100) as advance:
        clock(100)
        advance(50)
    assert not lines.messages
    assert "train:" in capsys.readouterr().err


def test_the_command_writes_them(command, release, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0)
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    assert command(tmp_path, "--input-folder", release) == 0
    assert "INFO: train: 0 MB in 0 s" in capsys.readouterr().err

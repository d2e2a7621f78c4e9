import logging
import sys
import threading

import pytest

from preprocess.pipeline.report import progress


@pytest.fixture
def wait(monkeypatch, caplog):
    """Make seconds pass; log lines are collected."""
    seconds = [0.0]
    caplog.set_level(logging.INFO, "preprocess")

    def wait(number):
        seconds[0] += number

    monkeypatch.setattr("tqdm.std.time", lambda: seconds[0])
    return wait


@pytest.mark.parametrize("total", [4 * 10**8, None, 0])
def test_a_line_every_half_minute_and_one_at_the_end(total, wait, caplog):
    threads = threading.active_count()
    with progress("train", total) as advance:
        for _ in range(100):
            wait(1)
            advance(10**6)
        assert threading.active_count() == threads  # workers are forked meanwhile
    shares = zip((8, 15, 22, 25), ("6:10", "5:40", "5:10", "5:00"), strict=True)
    left = [f"; {share} %, about 0{time} left" * bool(total) for share, time in shares]
    done = ["30.0MB in 00:30", "60.0MB in 01:00", "90.0MB in 01:30", "100MB in 01:40"]
    assert caplog.messages == [f"train: {one}, 1.00MB/s{end}" for one, end in zip(done, left, strict=True)]


def test_a_bar_on_a_terminal(wait, monkeypatch, capsys, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("train", 100) as advance:
        advance(50)
    assert not caplog.messages
    assert "train:" in capsys.readouterr().err

"""Files that appear whole under their names."""

import contextlib
import os

import pytest

from fairseq_poolingformer.text.whole_file import SUFFIX, whole_file, write_lines


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

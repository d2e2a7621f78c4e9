"""The data folder that a checkpoint records: a folder of plain files of a bounded size, or none."""

import os

import pytest

from fairseq_poolingformer.text.recorded_folder import LARGEST_FILE, recorded_folder


def test_only_a_data_folder_of_plain_files_is_read(tmp_path):
    assert recorded_folder(str(tmp_path)) is None
    (tmp_path / "dict.source.txt").write_text("a 1\n")
    assert recorded_folder(f"{tmp_path}:other") == recorded_folder([str(tmp_path)]) == tmp_path
    os.mkfifo(tmp_path / "dict.target.txt")
    assert recorded_folder(str(tmp_path)) is None
    (tmp_path / "dict.target.txt").unlink()
    with open(tmp_path / "corpus.json", "wb") as file:
        file.truncate(LARGEST_FILE + 1)
    assert recorded_folder(str(tmp_path)) is None


@pytest.mark.parametrize(
    "odd", [None, 3, "", ":", "\0", "x" * 10_000, "/dev/zero", "http://x/y", {"a": 1}, [], [[]]], ids=repr
)
def test_anything_else_is_no_folder(odd):
    assert recorded_folder(odd) is None

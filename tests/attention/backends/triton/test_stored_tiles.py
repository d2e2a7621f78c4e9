"""Measured tiles: the file that the backend reads, and files that are not one."""

import json
import logging

import pytest

from fairseq_poolingformer.attention.backends.triton import stored_tiles as module
from fairseq_poolingformer.attention.backends.triton.stored_tiles import read_tiles, stored_tiles, text_of, tile_file

TILES = {"forward": (128, 64, 8, 3), "backward_queries": (64, 64, 4, 2), "backward_keys": (16, 256, 16, 1)}
STORED = {"NVIDIA X1": {(2, 64): TILES, (4, 256): TILES}, "NVIDIA X2": {}}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    stored_tiles.cache_clear()
    yield tmp_path
    stored_tiles.cache_clear()


def write(text):
    tile_file().parent.mkdir(parents=True, exist_ok=True)
    tile_file().write_text(text, encoding="utf-8")


def test_what_is_written_is_read(home, caplog):
    assert tile_file() == home / ".cache/fairseq_poolingformer/tiles.json"
    assert stored_tiles() == {}
    stored_tiles.cache_clear()
    write(text_of(STORED))
    assert stored_tiles() == read_tiles(tile_file()) == STORED
    assert caplog.records == []


def with_tile(tile):
    kernels = {**TILES, "forward": tile}
    return json.dumps({"NVIDIA X1": {"2 bytes, 64 numbers": kernels}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("\xff", "Expecting value"),
        ("[" * 60_000, "nested too deeply"),
        (" " * 70_000, "more than 65536 bytes"),
        ("9" * 5000, "."),
        ("[]", "it is not a JSON object"),
        ('{"NVIDIA X1": []}', "NVIDIA X1 is not a JSON object"),
        ('{"NVIDIA X1": {"3 bytes, 64 numbers": {}}}', "does not name sizes"),
        ('{"NVIDIA X1": {"2 bytes, 64 numbers": {"forward": [64, 64, 4, 2]}}}', "its kernels are not forward"),
        *((with_tile(tile), "forward has no tile") for tile in (7, [64, 64, 4], [64, 64, 4, 2, 1], [64.0, 64, 4, 2])),
        *((with_tile(tile), "forward has no tile") for tile in ([48, 64, 4, 2], [8, 64, 4, 2], [512, 64, 4, 2])),
        *((with_tile(tile), "forward has no tile") for tile in ([64, 64, 32, 2], [64, 64, 4, 0], [64, 64, 4, 9])),
        *((with_tile(tile), "forward has no tile") for tile in ([True, 64, 4, 2], ["64", 64, 4, 2], [64, -64, 4, 2])),
    ],
)
def test_a_bad_file_is_a_warning_of_one_sentence(text, problem, caplog):
    write(text)
    with pytest.raises(ValueError, match=problem):
        read_tiles(tile_file())
    for _ in range(2):
        assert stored_tiles() == {}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"{tile_file()} is not used: ")
    assert problem in record.getMessage()


def test_a_folder_in_its_place_is_a_warning(caplog):
    tile_file().mkdir(parents=True)
    assert stored_tiles() == {}
    assert "is not used: " in caplog.text


def test_the_backend_takes_them_for_their_gpu_alone(monkeypatch):
    from fairseq_poolingformer.attention.backends.triton import arguments

    monkeypatch.setattr(module, "stored_tiles", lambda: STORED)
    monkeypatch.setattr(arguments, "tile_shape", arguments.tile_shape.__wrapped__)
    for kernel, tile in TILES.items():
        for head_dim in (33, 64):
            assert arguments.tile_shape(kernel, 90, head_dim, 2, False, "NVIDIA X1") == tile
        for others in (
            (90, 64, 2, True, "NVIDIA X1"),
            (90, 32, 2, False, "NVIDIA X1"),
            (90, 64, 4, False, "NVIDIA X1"),
            (90, 64, 2, False, "NVIDIA X2"),
            (90, 64, 2, False, None),
        ):
            assert arguments.tile_shape(kernel, *others) == arguments.tile_shape(kernel, *others[:-1])
    assert module.LARGEST_FILE < 2**20

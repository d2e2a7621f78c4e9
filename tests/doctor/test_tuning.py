"""Tiles are tried one after the other; times are made up, since kernels take none without a GPU."""

import pytest
import torch

from fairseq_poolingformer.attention.backends.triton.stored_tiles import read_tiles
from fairseq_poolingformer.cli.doctor import main

pytest.importorskip("triton")
from fairseq_poolingformer.attention.backends.triton import arguments, backend
from fairseq_poolingformer.attention.backends.triton.arguments import KernelTiles, TileShape
from fairseq_poolingformer.cli import doctor
from fairseq_poolingformer.doctor import machine, tuning

FAST = TileShape(128, 64, 8, 3)
DATA = {"device": "cpu", "dtype": torch.bfloat16, "head_dim": 16, "length": 40}


@pytest.fixture
def kernels(monkeypatch):
    """The block backend in place of the kernels; returns the tiles that they had."""
    from fairseq_poolingformer.attention.backends.block import backend as block

    used = []

    def run(call):
        shape = arguments.tile_shape("forward", None, 16, 2, False)
        used.append(shape)
        if shape.keys == 128:
            raise RuntimeError("PassManager::run failed\nmore of it")
        return block.run(call) * (1.1 if shape.num_warps == 4 and shape.queries == 32 else 1.0)

    monkeypatch.setattr(backend, "run", run)
    return used


def test_tiles_that_fail_or_compute_something_else_are_not_chosen(kernels, monkeypatch):
    profiled = []

    class Profile:
        def __init__(self, activities):
            pass

        def __enter__(self):
            profiled.append(self)
            return self

        def __exit__(self, *_):
            pass

        def events(self):
            return []

    monkeypatch.setattr(tuning, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    levels = tuning.levels(**DATA)
    expected = tuning.run(levels)
    assert [x.shape for x in expected[::4]] == [(1, 16, 40, 16)] * 2
    too_large, wrong, right = (TileShape(*x) for x in ((32, 128, 4, 2), (32, 64, 4, 2), (32, 64, 8, 2)))
    assert tuning.time_kernels(levels, too_large, expected) == "does not compile or fit: PassManager::run failed"
    assert tuning.time_kernels(levels, wrong, expected) == "computes something else"
    with pytest.raises(ValueError, match="profiler shows no time of forward, backward_queries, backward_keys"):
        tuning.time_kernels(levels, right, expected)
    assert len(profiled) == 1
    assert kernels.count(right) == 2 * (1 + tuning.RUNS)
    assert arguments.tile_shape("forward", None, 16, 2, False) != right, "the tile is left in place"


def test_an_error_that_no_tile_explains_ends_the_command(kernels, monkeypatch):
    def broken(call):
        raise RuntimeError("the GPU is on fire")

    levels = tuning.levels(**DATA)
    monkeypatch.setattr(backend, "run", broken)
    with pytest.raises(RuntimeError, match="on fire"):
        tuning.time_kernels(levels, FAST, [])


def test_every_tile_is_tried_the_present_ones_first(kernels, monkeypatch):
    monkeypatch.setattr(tuning, "time_kernels", lambda levels, shape, expected: str(shape.queries))
    found = [shape for shape, _ in tuning.tried(**DATA)]
    assert found[0] == tuning.present("cpu", torch.bfloat16, 16).forward
    assert len(set(found)) == len(found) == 3 * 3 * 2 * 2


@pytest.fixture
def one_gpu(monkeypatch, tmp_path):
    """A GPU on which everything but its tiles is left out of the report."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(machine, "DISK_BYTES", 2**20)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name in ("devices", "fairseq"):
        monkeypatch.setattr(machine, name, list)
    monkeypatch.setattr(machine, "fused_optimizer", str)
    monkeypatch.setattr(doctor, "backends", lambda device: [])
    monkeypatch.setattr(arguments, "name_of", lambda device: "NVIDIA X1")
    now = KernelTiles(*3 * (TileShape(64, 64, 4, 2),))
    monkeypatch.setattr(tuning, "present", lambda *_: now)

    def tried(device, dtype, head_dim, length):
        assert (device, head_dim, length) == ("cuda:0", 100, 512)
        yield now.forward, dict.fromkeys(KernelTiles._fields, 10.0)
        yield TileShape(128, 128, 8, 2), "does not compile"
        yield FAST, {"forward": 5.0, "backward_queries": 12.0, "backward_keys": 8.0}

    monkeypatch.setattr(tuning, "tried", tried)
    return now


def test_the_fastest_are_stored_where_the_backend_reads_them(one_gpu, capsys, tmp_path):
    options = ["--tune", "--lengths", "512", "--head-dim", "100"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    file = tmp_path / ".cache/fairseq_poolingformer/tiles.json"
    assert "\n| 128 | 64 | 8 | 3 | 5.0 | 12.0 | 8.0 |\n| 128 | 128" not in printed
    assert "\n| 128 | 128 | 8 | 2 | does not compile |  |  |\n" in printed
    assert f"The present tiles take 30.0 µs, the fastest 23.0 µs; {file} has them now." in printed
    fastest = {"forward": FAST, "backward_queries": one_gpu.forward, "backward_keys": FAST}
    assert read_tiles(file) == {"NVIDIA X1": {(2, 128): fastest}}
    assert main([*options, "--precision", "fp32"]) == 0
    assert read_tiles(file) == {"NVIDIA X1": {(2, 128): fastest, (4, 128): fastest}}
    assert main([*options, "--tiles", str(tmp_path / "other.json")]) == 0
    assert read_tiles(tmp_path / "other.json") == {"NVIDIA X1": {(2, 128): fastest}}


def test_a_file_that_has_no_tiles_is_not_replaced(one_gpu, capsys, tmp_path):
    (tmp_path / "notes.json").write_text("[]")
    assert main(["--tune", "--lengths", "512", "--head-dim", "100", "--tiles", str(tmp_path / "notes.json")]) == 1
    errors = capsys.readouterr().err
    assert "notes.json: it is not a JSON object; remove it, or name another file with --tiles" in errors
    assert (tmp_path / "notes.json").read_text() == "[]"
    assert main(["--tune", "--head-dim", "300"]) == 1
    assert "--head-dim of at most 256" in capsys.readouterr().err

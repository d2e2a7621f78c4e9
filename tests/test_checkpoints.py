import argparse
import collections
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import meters
from omegaconf import OmegaConf

from fairseq_poolingformer import checkpoints
from fairseq_poolingformer.checkpoints import OPTIMIZER, CheckpointError, data_folder, load, read, recorded_folder
from fairseq_poolingformer.patches import table

table.apply()

VALUES = {
    "numbers and text": [None, True, 3, -(2**70), 0.1, float("inf"), "é\n", b"\x80", b""],
    "containers": [(), (1, [2, {"a": (3,)}]), {1, "a"}, set(), {1: None, 0.5: [], None: ()}],
    "collections": [collections.Counter("abca"), collections.defaultdict(list, {"a": [1]}), collections.OrderedDict()],
    "torch": [torch.Size([2, 3]), torch.device("cuda:1"), torch.bfloat16, torch.arange(6.0)[1:5:2]],
    "numpy's scalars": [np.float64(0.25), np.int64(-3), np.bool_(True), np.str_("é")],
    "numpy's arrays": [np.arange(6, dtype=">i2").reshape(2, 3).T, np.zeros((0, 4)), np.array(2.5), np.array(["a"])],
}


def same(actual, expected):
    """Whether two values are equal in type and content; a dictionary with a default is a dictionary."""
    if isinstance(expected, torch.Tensor):
        return torch.equal(actual, expected)
    if isinstance(expected, np.ndarray):
        return actual.dtype == expected.dtype and np.array_equal(actual, expected)
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and list(actual) == list(expected)
            and all(map(same, *map(dict.values, (actual, expected))))
        )
    if isinstance(expected, list | tuple):
        return type(actual) is type(expected) and len(actual) == len(expected) and all(map(same, actual, expected))
    return type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_that_were_saved(tmp_path, name, zipped):
    torch.save(VALUES[name], tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert same(read(tmp_path / "x.pt"), VALUES[name])


def renamed(path, value, old, new):
    """Save a value as a former version of a library did, whose names were others."""
    torch.save(value, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return read(path)


@pytest.mark.parametrize("module", [b"fairseq.logging.meters", b"fairseq.meters"])
def test_meters_become_dictionaries(tmp_path, module):
    """Released checkpoints hold fairseq's meters, which fairseq no longer reads."""
    held = collections.OrderedDict(loss=meters.AverageMeter(), wall=meters.TimeMeter(), gnorm=meters.StopwatchMeter())
    held["loss"].update(3, 2)
    state = renamed(tmp_path / "x.pt", held, b"fairseq.logging.meters", module)
    assert state == {name: vars(meter) for name, meter in held.items()}


@pytest.mark.parametrize("core", [b"numpy._core", b"numpy.core"])
def test_the_modules_of_both_numpys(tmp_path, core):
    here = np.float64(0).__reduce__()[0].__module__.rpartition(".")[0].encode()
    scalar, array = renamed(tmp_path / "x.pt", [np.float64(27.5), np.arange(3)], here, core)
    assert (scalar, array.tolist()) == (27.5, [0, 1, 2])


@pytest.mark.parametrize("make", [OmegaConf.create, dict])
def test_fairseq_makes_its_configuration_of_either_form(tmp_path, make):
    """Early hydra checkpoints hold it as omegaconf's, later ones as dictionaries with a Namespace in them."""
    configuration = {"model": {"_name": "transformer", "dropout": 0.5, "langs": [1, None, {"a": True}]}}
    configuration["task"] = {"_name": "translation"}
    if make is dict:
        configuration["model"] = argparse.Namespace(**configuration["model"])
    history = [{"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 3}]
    extra_state = {"train_iterator": {"epoch": 1}, "best": np.float64(2.5)}
    state = {"model": {}, "args": None, "cfg": make(configuration), "extra_state": extra_state}
    torch.save({**state, "optimizer_history": history}, tmp_path / "x.pt")
    if make is not dict:
        assert read(tmp_path / "x.pt")["cfg"] == configuration
    loaded = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"), {"dropout": 0.25})
    assert (loaded["cfg"].model._name, loaded["cfg"].task._name) == ("transformer", "translation")
    assert (loaded["cfg"].model.dropout, loaded["extra_state"]["best"]) == (0.25, 2.5)


class Touches:
    """Runs when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("reader", [load, checkpoint_utils.load_checkpoint_to_cpu])
def test_code_in_a_checkpoint_is_not_run(tmp_path, zipped, reader):
    path = tmp_path / "x.pt"
    torch.save({"model": {}, "a": Touches(tmp_path / "ran")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError) as caught:
        reader(str(path))
    assert not (tmp_path / "ran").exists()
    message = str(caught.value)
    assert message.startswith(f"{path} was not loaded: it refers to getattr")  # of pathlib.Path
    assert "save it there with nothing else" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"model": {}, "a": np.array([None])}, "holds more than numbers"),
        ({"model": {}, "a": np.zeros(1, dtype=[("a", "f8")])}, "holds more than numbers"),
        ({"model": {}, "a": Path("x")}, "refers to pathlib.PosixPath"),
        ([1, 2], "x.pt is not a checkpoint of fairseq: .*has no entry 'model'.*poolingformer convert"),
        ({"weight": torch.ones(2)}, "x.pt is not a checkpoint of fairseq: .*has no entry 'model'"),
        ({"model": [1]}, "x.pt is not a checkpoint of fairseq: .*'model' is not tensors by name"),
        ({"model": {"w": 3}}, "'model' is not tensors by name"),
        ({"model": {3: torch.ones(1)}}, "'model' is not tensors by name"),
        ({"model": {}, "args": "x"}, "x.pt is not a checkpoint of fairseq: .*'args' is not options by name"),
        ({"model": {}, "cfg": [1]}, "x.pt is not a checkpoint of fairseq: .*'cfg' is not options by name"),
    ],
)
def test_other_files_of_torch_are_refused(tmp_path, held, message):
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=message):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))


def checkpoint(path: Path, zipped: bool = True) -> Path:
    torch.manual_seed(0)
    state = {"args": argparse.Namespace(arch="x"), "cfg": None, "model": {"w": torch.randn(40, 30)}, "n": [1, "a"]}
    torch.save({**state, OPTIMIZER: {"m": torch.ones(99)}}, path, _use_new_zipfile_serialization=zipped)
    return path


SAFETENSORS = b"\x10\0\0\0\0\0\0\0{}"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: writing or copying it was broken off"),
        (b"a text\n" * 40, "is not a checkpoint. It begins with b'a text"),
        (b"<!doctype html><html>", "A web page was saved in its place"),
        (LFS, "git lfs pull"),
        (SAFETENSORS, "poolingformer convert to-fairseq"),
        *((content, "is damaged or cut short") for content in (b"PK\x03\x04" + bytes(500), 0.5, 0.05, -0.5)),
    ],
)
@pytest.mark.parametrize("reader", [load, checkpoint_utils.load_checkpoint_to_cpu])
def test_files_that_are_no_checkpoint(tmp_path, content, message, reader):
    """A number is the share that is left of a checkpoint; a negative one, of one as torch saved them before 1.6."""
    path = checkpoint(tmp_path / "x.pt", zipped=not isinstance(content, float) or content > 0)
    if isinstance(content, float):
        whole = path.read_bytes()
        content = whole[: int(len(whole) * abs(content))]
    path = path.with_suffix(".safetensors") if content == SAFETENSORS else path
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        reader(str(path))
    assert str(caught.value).startswith(f"{path} ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", [load, lambda path: checkpoint_utils.load_model_ensemble([path])])
def test_a_pipe_is_not_waited_for(tmp_path, reader):
    os.mkfifo(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"/x\.pt is not a file"):
        reader(str(tmp_path / "x.pt"))


@pytest.mark.full
@pytest.mark.parametrize("unread", [(), (OPTIMIZER,)])
@pytest.mark.parametrize("zipped", [True, False])
def test_flipped_bits_and_cuts_are_named_or_harmless(tmp_path, zipped, unread):
    """Each is refused, or leaves all as it was. Files from before torch 1.6 have no checksums: theirs only end well."""
    path = checkpoint(tmp_path / "x.pt", zipped)
    whole = path.read_bytes()
    expected, chance, refused = read(path, unread), random.Random(1), 0
    for number in range(250):
        content = bytearray(whole)
        if number < 200:
            content[chance.randrange(len(content) if zipped else 600)] ^= 1 << chance.randrange(8)
        else:
            content = content[: chance.randrange(len(content))]
        path.write_bytes(content)
        try:
            state = load(path, unread)
        except CheckpointError as error:
            refused += str(error).startswith(f"{path} ")
        else:
            assert not zipped or same(state, expected)
            assert number < 200 or not zipped
    assert refused > (200 if zipped else 70)


@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_entries_that_are_not_asked_for_stay_on_the_disk_also_in_other_programs_archives(tmp_path, compression):
    path = other = checkpoint(tmp_path / "x.pt")
    if compression is not None:
        other = tmp_path / "y.pt"
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w", compression) as written:
            for record in archive.infolist():
                written.writestr(record.filename, archive.read(record))
    weight = load(path)["model"]["w"]
    state = load(other, (OPTIMIZER,))
    assert state[OPTIMIZER] == {}
    assert torch.equal(state["model"]["w"], weight)
    state["model"]["w"] += 1  # of this process's memory, not of the file
    assert torch.equal(load(other)["model"]["w"], weight)


def test_files_without_checksums_are_read_with_a_warning(tmp_path, caplog):
    torch.serialization.set_crc32_options(False)
    try:
        path = checkpoint(tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert load(path)["n"] == [1, "a"]
    assert "x.pt was saved without checksums" in caplog.text


def test_the_data_folder_that_a_checkpoint_records_is_used_where_nothing_lies_beside_it(tmp_path):
    checkpoint, data = tmp_path / "run" / "x.pt", tmp_path / "data"
    checkpoint.parent.mkdir()
    data.mkdir()
    assert data_folder(checkpoint, str(data)) == checkpoint.parent
    (data / "dict.source.txt").write_text("a 1\n")
    assert data_folder(checkpoint, f"{data}:other") == data_folder(checkpoint, [str(data)]) == data
    (checkpoint.parent / "dict.txt").write_text("a 1\n")
    assert data_folder(checkpoint, str(data)) == checkpoint.parent
    for odd in (None, 3, "", ":", "x" * 10_000, "/dev/zero", "http://x/y", {"a": 1}, [], [[]]):
        assert recorded_folder(odd) is None


def crafted(path, content, zipped, name="data.pkl"):
    """Write a pickle of protocol 2 as torch stores it."""
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"x/{name}", content)
            archive.writestr("x/version", "3\n")
    else:
        torch.save({"model": {}}, path, _use_new_zipfile_serialization=False)
        content = path.read_bytes().replace(pickle.dumps({"model": {}}, 2), content)
        path.write_bytes(content)
    return path


def doubled(times, width=2):
    """A pickle of a dictionary whose key is a tuple of a tuple twice, and so on."""
    key = b"(" * times + b")" + b"".join(b"q%c%st" % (index, b"h%c" % index * (width - 1)) for index in range(times))
    return b"\x80\x02}q\xff(X\x05\x00\x00\x00model}X\x01\x00\x00\x00x}" + key + b"K\x01su."


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("times", "width", "is_refused"), [(16, 2, False), (17, 2, True), (90, 2, True), (3, 90, False), (4, 90, True)]
)
def test_tuples_that_would_be_hashed_without_end_are_refused(tmp_path, zipped, times, width, is_refused):
    path = crafted(tmp_path / "x.pt", doubled(times, width), zipped)
    if is_refused:
        with pytest.raises(
            CheckpointError, match=r"^\S+/x\.pt was not loaded: it has .* deep, or takes more than 5,000,000 steps"
        ):
            read(path)
    else:
        assert len(read(path)["x"]) == 1


@pytest.mark.parametrize("name", ["DATA.PKL", "data.pkl"])
def test_every_pickle_that_torch_reads_is_bounded(tmp_path, name, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_STEPS", 500)
    path = crafted(tmp_path / "x.pt", pickle.dumps({"model": {}, "x": [0] * 400}, 2), True, name)
    assert len(read(path)["x"]) == 400
    crafted(path, pickle.dumps({"model": {}, "x": [0] * 500}, 2), True, name)
    with pytest.raises(CheckpointError, match="takes more than 500 steps"):
        read(path)


@pytest.mark.parametrize("kind", [list, lambda pair: {"a": pair[0], "b": pair[1]}])
def test_objects_that_a_file_holds_many_times_are_read_once(tmp_path, kind):
    """Two kilobytes that would be 2^64 values; the objects stay shared."""
    value = np.float64(1.5)
    for _ in range(64):
        value = kind([value, value])
    torch.save({"model": {}, "deep": value}, tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 10_000
    value = load(tmp_path / "x.pt")["deep"]
    for _ in range(64):
        value, other = value.values() if isinstance(value, dict) else value
        assert value is other
    assert (type(value), value) == (np.float64, 1.5)

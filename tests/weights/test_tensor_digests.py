"""Weights that changed after they were written: every reader of this package notices."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fairseq_poolingformer.models import demo_model
from fairseq_poolingformer.weights import ConversionError, files, tensor_digests
from fairseq_poolingformer.weights.tensor_digests import KEY, ChangedTensorsError, add_digests, check_digests

STATE = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "b": torch.tensor(5),
    "c": torch.zeros(0, 3),
    "d": torch.ones(300, dtype=torch.bfloat16),
}


@pytest.fixture
def path(tmp_path):
    save_file(STATE, tmp_path / "model.safetensors", metadata={"format": "pt", "note": "é"})
    return tmp_path / "model.safetensors"


def flip(path, place, bit=0):
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def test_the_tensors_and_the_metadata_stay(path):
    add_digests(path)
    once = path.read_bytes()
    add_digests(path)
    assert path.read_bytes() == once
    check_digests(path)
    found = load_file(path)
    assert set(found) == set(STATE)
    for name, value in STATE.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata.keys() == {"format", "note", KEY}
    assert metadata["note"] == "é"
    assert json.loads(metadata[KEY]).keys() == STATE.keys()


def test_saving_writes_the_file_once(path, tmp_path, monkeypatch):
    add_digests(path)
    monkeypatch.setattr(tensor_digests, "atomic_write", None)  # what writes a file anew
    state = {**STATE, 'é"\\': torch.ones(2)}
    tensor_digests.save(state, tmp_path / "saved.safetensors")
    check_digests(tmp_path / "saved.safetensors")
    (tmp_path / "other").touch()  # may be read by whoever may read other new files
    assert (tmp_path / "saved.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert load_file(tmp_path / "saved.safetensors").keys() == state.keys()
    found = [json.loads(safe_open(file, "pt").metadata()[KEY]) for file in (path, tmp_path / "saved.safetensors")]
    assert found[0].items() < found[1].items()


def test_every_flip_of_a_tensor_is_noticed(path):
    add_digests(path)
    good = path.read_bytes()
    start = 8 + int.from_bytes(good[:8], "little")
    for place in range(start, len(good), 5):
        flip(path, place, place % 8)
        with pytest.raises(ChangedTensorsError, match=r"model\.safetensors: .* changed since"):
            check_digests(path)
        path.write_bytes(good)


@pytest.mark.parametrize("change", [b'"b"', b"[3,4]", b'"F32"', b'"data_offsets":[0,'])
def test_another_name_shape_type_or_place_is_noticed(change, path):
    add_digests(path)
    other = {b'"b"': b'"x"', b"[3,4]": b"[4,3]", b'"F32"': b'"I32"', b'"data_offsets":[0,': b'"data_offsets":[4,'}
    data = path.read_bytes()
    assert change in data
    path.write_bytes(data.replace(change, other[change], 1))
    with pytest.raises(ChangedTensorsError):
        check_digests(path)


@pytest.mark.parametrize("digests", ["", "[]", "5", "{}", "[" * 100_000, '{"a.weight": [1]}'])
def test_digests_that_are_nonsense_are_a_sentence(digests, path):
    save_file(STATE, path, metadata={"format": "pt", KEY: digests})
    with pytest.raises(ChangedTensorsError, match=r"a\.weight, b, c changed since"):
        check_digests(path)


def test_a_file_without_digests_is_read_as_before(path):
    check_digests(path)
    assert files.read_huggingface_weights(path.parent).keys() == STATE.keys()


def test_conversion_notices(tmp_path):
    files.write_huggingface_weights(tmp_path, STATE)
    assert files.read_huggingface_weights(tmp_path).keys() == STATE.keys()
    flip(tmp_path / "model.safetensors", -1)
    with pytest.raises(ConversionError, match=r"model\.safetensors is damaged .* changed since the file was written"):
        files.read_huggingface_weights(tmp_path)


def test_the_reader_notices(tmp_path):
    shutil.copytree(demo_model.FOLDER, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    settings = json.loads((tmp_path / "config.json").read_text())
    demo_model.write_demo_model(tmp_path, settings, weights)
    demo_model.write_demo_checkpoint(tmp_path / "good.pt", tmp_path)
    flip(tmp_path / "model.safetensors", -1)
    with pytest.raises(ValueError, match="changed since"):
        demo_model.write_demo_checkpoint(tmp_path / "bad.pt", tmp_path)

"""numpy in checkpoints: what numpy pickles is read back, and crafted states are refused instead of crashing."""

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from fairseq_poolingformer import compat
from fairseq_poolingformer.compat import checkpoint_files

compat.apply()

VALUES = [
    np.float64(0.25),
    np.int64(-3),
    np.bool_(True),
    np.str_("é"),
    np.bytes_(b"ab"),
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(3, dtype=">f4"),
    np.array(["ab", "c"]),
    np.zeros((0, 4)),
    np.array(2.5),
]


def load(file):
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{value.dtype}")
@pytest.mark.parametrize("core", [b"numpy._core", b"numpy.core"])
def test_plain_values_are_read_back(value, core):
    file = io.BytesIO()
    torch.save({"value": value}, file, _use_new_zipfile_serialization=False)
    here = value.__reduce__()[0].__module__.rpartition(".")[0].encode()
    found = load(io.BytesIO(file.getvalue().replace(here, core)))["value"]
    assert found.dtype == pickle.loads(pickle.dumps(value)).dtype  # numpy turns other byte orders into its own
    assert found.shape == value.shape
    np.testing.assert_array_equal(np.asarray(found), value)
    again = io.BytesIO()
    torch.save(found, again)
    assert type(torch.load(io.BytesIO(again.getvalue()), weights_only=False)) is type(value)


class Crafted:
    """An object that is pickled as a call and a state of one's choice."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


_reconstruct = np.zeros(0).__reduce__()[0]
_scalar = np.float64(0).__reduce__()[0]


def dtype(code="f8", *state):
    return Crafted(np.dtype, (code, False, True), state or (3, "<", None, None, None, -1, -1, 0))


def array(*state):
    return Crafted(_reconstruct, (np.ndarray, (0,), b"b"), state)


CRAFTED = {
    "objects": np.array([{}], dtype=object),
    "fields": np.zeros(2, dtype=[("a", "f8")]),
    "a type of objects": dtype("O8"),
    "a type with parts": dtype("f8", 3, "<", (np.dtype("f4"), (1000,)), None, None, -1, -1, 0),
    "a larger item than the type's": dtype("f8", 3, "<", None, None, None, 1 << 40, 1, 0),
    "a type without a state": Crafted(np.dtype, ("f8", False, True), (3,)),
    "no such type": dtype("f77"),
    "an array larger than its values": array(1, (1 << 40,), dtype(), False, b"12345678"),
    "an array smaller than its values": array(1, (1,), dtype(), False, b"1234567890123456"),
    "a negative size": array(1, (-1, -1), dtype(), False, b"12345678"),
    "a shape that is none": array(1, "ab", dtype(), False, b""),
    "values that are none": array(1, (1,), dtype(), False, [1]),
    "a state that is none": array(1),
    "a scalar without its bytes": Crafted(_scalar, (dtype(), b"1")),
    "a scalar of no type": Crafted(_scalar, ("f8", b"12345678")),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_values_are_refused(name):
    file = io.BytesIO()
    torch.save(CRAFTED[name], file)
    with pytest.raises(pickle.UnpicklingError, match=r"numpy|Unsupported"):
        load(file)


CHANGED_STATE = """
import io, numpy as np, torch, fairseq_poolingformer
fairseq_poolingformer.register()
_reconstruct = np.zeros(0).__reduce__()[0]
class Dtype:
    def __reduce__(self):
        return np.dtype, ("f8", False, True), (3, "<", None, None, None, 1 << 30, 1, 0)
class Array:
    def __reduce__(self):
        return _reconstruct, (np.ndarray, (0,), b"b"), (1, (1000,), Dtype(), False, b"x" * 8000)
file = io.BytesIO()
torch.save(Array(), file)
file.seek(0)
try:
    print(torch.load(file, weights_only=True).sum())
except Exception as error:
    print("refused", error)
"""


def test_an_array_whose_type_is_changed_afterwards_does_not_crash_the_process():
    result = subprocess.run([sys.executable, "-c", CHANGED_STATE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "refused" in result.stdout


def test_numpy_allowed_by_others_changes_nothing(tmp_path):
    """Programs that met torch 2.6's refusal allow numpy themselves."""
    state = {"model": {}, "best": np.float64(1.5), "array": np.arange(3.0)}
    torch.save(state, tmp_path / "x.pt")
    before = torch.serialization.get_safe_globals()
    own = [np.ndarray, np.dtype, np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]]
    try:
        for entries in (own, own[::-1]):
            torch.serialization.add_safe_globals(entries)
            loaded = checkpoint_files.load(tmp_path / "x.pt")
            assert loaded["best"] == 1.5
            assert loaded["array"].tolist() == [0.0, 1.0, 2.0]
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)

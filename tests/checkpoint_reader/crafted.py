"""Files of torch whose pickles are written by hand."""

import io
import pickle
import struct
import zipfile
from typing import Any

import numpy as np

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2) + pickle.dumps({}, protocol=2)


def archive(data: bytes, compression: int = zipfile.ZIP_STORED, **storages: bytes) -> io.BytesIO:
    """A zip archive with a pickle, and storages by key: ``s0``, ``s1``, …"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as written:
        written.writestr("x/data.pkl", data)
        for key, content in storages.items():
            written.writestr(f"x/data/{key}", content)
    return file


def legacy(data: bytes, **storages: tuple[int, bytes]) -> io.BytesIO:
    """A file in the format before torch 1.6; a storage is its number of elements, and its bytes."""
    content = [struct.pack("<q", count) + values for count, values in storages.values()]
    return io.BytesIO(MAGIC + data + pickle.dumps(list(storages), protocol=2) + b"".join(content))


class Crafted:
    """An object that is pickled as a call and a state of one's choice."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple:
        return self.reduced


_reconstruct = np.zeros(0).__reduce__()[0]
_scalar = np.float64(0).__reduce__()[0]


def dtype(code: str = "f8", *state: Any) -> Crafted:
    return Crafted(np.dtype, (code, False, True), state or (3, "<", None, None, None, -1, -1, 0))


def array(*state: Any) -> Crafted:
    return Crafted(_reconstruct, (np.ndarray, (0,), b"b"), state)


NUMPY = {
    "objects": np.array([{}], dtype=object),
    "objects made of bytes": Crafted(np.ndarray, ((1,), "O", b"12345678")),
    "fields": np.zeros(2, dtype=[("a", "f8")]),
    "a type of objects": dtype("O8"),
    "a type with parts": dtype("f8", 3, "<", (np.dtype("f4"), (1000,)), None, None, -1, -1, 0),
    "a larger item than the type's": dtype("f8", 3, "<", None, None, None, 1 << 40, 1, 0),
    "a type without a state": Crafted(np.dtype, ("f8", False, True), (3,)),
    "no such type": dtype("f77"),
    "an array larger than its values": array(1, (1 << 40,), dtype(), False, b"12345678"),
    "an array smaller than its values": array(1, (1,), dtype(), False, b"1234567890123456"),
    "an array of nothing, many times": array(1, (1 << 40,), dtype("U0"), False, b""),
    "sizes whose product overflows": array(1, (0, 1 << 40, 1 << 40), dtype(), False, b""),
    "a negative size": array(1, (-1, -1), dtype(), False, b"12345678"),
    "a shape that is none": array(1, "ab", dtype(), False, b""),
    "values that are none": array(1, (1,), dtype(), False, [1]),
    "a state that is none": array(1),
    "an array with a type to come": array(1, (1,), Crafted(np.dtype, ("f8", False, True)), False, b"12345678"),
    "a character that does not exist": array(1, (1,), dtype("U1"), False, b"\xff" * 4),
    "a scalar without its bytes": Crafted(_scalar, (dtype(), b"1")),
    "a scalar of no type": Crafted(_scalar, ("f8", b"12345678")),
}

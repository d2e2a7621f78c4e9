"""The two containers of ``torch.save``: a zip archive, and before torch 1.6 pickles with the storages behind them."""

import io
import logging
import os
import struct
import sys
from collections.abc import Collection
from typing import Any, BinaryIO

import torch

from fairseq_poolingformer.checkpoint_reader.bounds import MOST_BYTES, Budget, shown
from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused, first_line
from fairseq_poolingformer.checkpoint_reader.machine import Machine
from fairseq_poolingformer.checkpoint_reader.tensors import Storage, storage_dtype
from fairseq_poolingformer.checkpoint_reader.whole import check_whole, refusal, tensors
from fairseq_poolingformer.checkpoint_reader.zip_archive import Record, ZipArchive

logger = logging.getLogger(__name__)

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02"  # first bytes of a zip archive, and of the pickles before torch 1.6
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001  # the first two pickles of a file from before torch 1.6


def read(file: BinaryIO, unread: Collection[str] = ()) -> Any:
    """Read a file of ``torch.save`` to the CPU."""
    file.seek(0)
    container = _Zip(file) if file.read(4) == ZIP else _Legacy(file)
    try:
        value = container.machine.load()
        check_whole(value, container.file_size)
    except (Malformed, Refused):
        if not container.machine.foreign:
            raise
    if container.machine.foreign:
        raise Refused(refusal(container.machine.foreign))
    if unread and isinstance(value, dict):
        value.update({name: {} for name in unread if isinstance(value.get(name), dict)})
        container.fill({tensor.untyped_storage().data_ptr() for tensor in tensors(value)})
    else:
        container.fill()
    del container.machine  # which holds the container and all that it built, until Python looks for such circles
    return value


class _Zip:
    """A zip archive: ``data.pkl``, and a record for each storage."""

    def __init__(self, file: BinaryIO) -> None:
        self._archive = ZipArchive(file)
        self.file_size = self._archive.file_size
        if not self._archive.has_checksums:
            logger.warning(f"{getattr(file, 'name', 'it')} was saved without checksums, so damage cannot be seen")
        self._folder = next(iter(self._archive.records), b"").partition(b"/")[0]
        self._storages: dict[str, tuple[Storage, Record]] = {}
        self._read: set[bytes] = set()
        if self._record("constants.pkl") is not None:
            raise Refused("it is a TorchScript program, and a checkpoint may hold nothing but data")
        self._is_swapped = self._order() != sys.byteorder.encode()
        self.machine = Machine(io.BytesIO(self._content("data.pkl", MOST_BYTES)), Budget(), self._storage)

    def _record(self, name: str) -> Record | None:
        return self._archive.records.get(self._folder + b"/" + name.encode("utf-8", "surrogatepass"))

    def _content(self, name: str, most: int) -> bytes:
        record = self._record(name)
        if record is None:
            raise Malformed(f"it lacks {name}")
        if record.size > most:
            raise Refused(f"its {name} has {record.size:,} bytes")
        self._read.add(record.name)
        return bytes(self._archive.read(record))

    def _order(self) -> bytes:
        order = b"little" if self._record("byteorder") is None else self._content("byteorder", 10)
        if order not in (b"little", b"big"):
            raise Malformed("its byte order is unknown")
        return order

    def _storage(self, place: Any) -> Storage:
        """Make the storage of ``("storage", kind, key, device, number of elements)``."""
        kind, key, count = _place(place, 5)
        dtype = storage_dtype(kind)
        found, record = self._storages.get(key, (None, None))
        if found is None:
            record = self._record(f"data/{key}")
            if count and (record is None or record.size != count * dtype.itemsize):
                raise Malformed(f"its tensors do not fit its record data/{shown(key)}")
            found = Storage(dtype, torch.UntypedStorage(count * dtype.itemsize), 0, count)
            self._storages[key] = found, record
        if (found.dtype, found.count) != (dtype, count):
            raise Malformed(f"its tensors do not agree about its record data/{shown(key)}")
        return found

    def fill(self, wanted: Collection[int] | None = None) -> None:
        """Read the storages, or those at the wanted addresses, and compare the checksums of all other records."""
        for storage, record in self._storages.values():
            if storage.count:
                self._read.add(record.name)
            if storage.count and (wanted is None or storage.memory.data_ptr() in wanted):
                self._archive.read_into(record, storage.bytes())
                if self._is_swapped:
                    storage.memory.byteswap(storage.dtype)
        for record in self._archive.records.values():
            if record.name not in self._read:
                self._archive.check(record)


class _Legacy:
    """The format before torch 1.6: magic number, version, a description of the machine, the value, and the storages."""

    def __init__(self, file: BinaryIO) -> None:
        self.file_size = file.seek(0, 2)
        file.seek(0)
        self._file = file
        self._storages: dict[str, Storage] = {}
        self.machine = Machine(file, Budget(), self._storage)
        for number in (MAGIC, VERSION):
            found = self.machine.load()
            if type(found) is not int or found != number:
                raise Malformed("it does not begin as torch's files do")
        self.machine.load()
        self._left = self.file_size - file.tell()  # bytes of the file that storages may take

    def _storage(self, place: Any) -> Storage:
        """Make the storage of ``("storage", kind, key, device, number of elements, view)``.

        A view is its own key, its first element and its number of elements.
        """
        kind, key, count = _place(place, 6)
        dtype = storage_dtype(kind)
        found = self._storages.get(key)
        if found is None:
            self._left -= count * dtype.itemsize
            if self._left < 0:
                raise Malformed("it is shorter than its tensors")
            found = Storage(dtype, torch.UntypedStorage(count * dtype.itemsize), 0, count)
            self._storages[key] = found
        if (found.dtype, found.count) != (dtype, count):
            raise Malformed(f"its tensors do not agree about their storage {shown(key)}")
        if place[5] is None:
            return found
        if not (isinstance(place[5], tuple) and len(place[5]) == 3 and all(type(part) is int for part in place[5][1:])):
            raise Malformed("a view of a storage in it is malformed")
        _, first, size = place[5]
        if not 0 <= first <= first + size <= count:
            raise Malformed("a view of a storage in it lies outside")
        return Storage(dtype, found.memory, first, size)

    def fill(self, wanted: Collection[int] | None = None) -> None:
        """Read the storages, or those at the wanted addresses."""
        keys = self.machine.load()
        named = isinstance(keys, list) and all(type(key) is str for key in keys)
        if not named or sorted(keys) != sorted(self._storages):
            raise Malformed("its list of storages does not fit its tensors")
        for key in keys:
            storage = self._storages[key]
            size = self._file.read(8)
            if len(size) != 8 or struct.unpack("<q", size) != (storage.count,):
                raise Malformed(
                    f"its storage {shown(key)} has another size than its tensors say, or its end is missing"
                )
            if storage.count and wanted is not None and storage.memory.data_ptr() not in wanted:
                self._file.seek(storage.memory.nbytes(), 1)
            elif storage.count and self._file.readinto(storage.bytes()) != len(storage.bytes()):
                raise Malformed("its end is missing")
            if sys.byteorder == "big":
                storage.memory.byteswap(storage.dtype)


def _place(place: Any, parts: int) -> tuple[Any, str, int]:
    """The kind, key and number of elements of a storage."""
    if not isinstance(place, tuple) or not place or type(place[0]) is not str:
        raise Malformed("a tensor in it lacks its storage")
    if place[0] == "module":
        raise Refused("it holds a module of torch, and a checkpoint may hold nothing but data")
    if not (
        len(place) == parts
        and place[0] == "storage"
        and type(place[2]) is str
        and type(place[4]) is int
        and 0 <= place[4] < 2**56
    ):
        raise Malformed("a tensor in it lacks its storage")
    return place[1], place[2], place[4]


def damage(path: str | os.PathLike) -> str | None:
    """Say how a checkpoint file is damaged; None when every byte is what was written."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
            if head.startswith(LEGACY):
                return None
            if head != ZIP:
                return "it is not a file of torch" if head else "it is empty"
            archive = ZipArchive(file)
            for record in archive.records.values():
                archive.check(record)
    except (Malformed, Refused, OSError) as error:
        return first_line(error)
    return None

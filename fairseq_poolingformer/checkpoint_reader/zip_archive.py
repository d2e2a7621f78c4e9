"""The records of a zip archive, read where they lie, each with its checksum.

Python's ``zipfile`` makes an object for each entry that a directory has, before it can be asked how many there are, and
reads a record by way of a copy. This reads the same archives, and refuses what ``torch.save`` never writes.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from fairseq_poolingformer.checkpoint_reader.bounds import growth, shown
from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused

MOST_RECORDS = 2**17
BLOCK = 2**20  # bytes that are read and summed at a time, while they are in the processor's cache
LONGEST_COMMENT = 2**16
STORED, DEFLATED = 0, 8
_END = struct.Struct("<4s4H2LH")
_END_64_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_HEADER = struct.Struct("<4s5H3L2H")
_LONG = 2**32 - 1  # stands for a number of 64 bits in the entry's additional field


class Record(NamedTuple):
    """A record: its name, how it is packed, its checksum, its bytes there and unpacked, and where its header begins."""

    name: bytes
    method: int
    checksum: int
    packed: int
    size: int
    offset: int

    def __str__(self) -> str:
        return shown(self.name.decode("utf-8", "replace"))


class ZipArchive:
    """A zip archive."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.file_size = file.seek(0, 2)
        self.records: dict[bytes, Record] = {}
        for record in self._directory():
            if record.name in self.records:
                raise Malformed(f"it has two records {record}")
            self.records[record.name] = record
        ordered = sorted(self.records.values(), key=lambda record: record.offset)
        ends = [record.offset + _HEADER.size + record.packed for record in ordered]
        if any(end > after.offset for end, after in zip(ends, ordered[1:], strict=False)):
            raise Malformed("two of its records overlap")
        fault = growth(self.file_size, sum(record.size for record in ordered))
        if fault is not None:
            raise Refused(fault)
        self.has_checksums = any(record.checksum for record in ordered)

    def read(self, record: Record) -> bytearray:
        """The bytes of a record; see :meth:`read_into`."""
        content = bytearray(record.size)
        self.read_into(record, memoryview(content))
        return content

    def read_into(self, record: Record, memory: memoryview) -> None:
        """Read a record into memory of its size."""
        self._unpack(record, lambda position, size: memory[position : position + size])

    def check(self, record: Record) -> None:
        """Compare the checksum of a record; see :meth:`read_into`."""
        scratch = memoryview(bytearray(min(BLOCK, record.size)))
        self._unpack(record, lambda position, size: scratch[:size])

    def _unpack(self, record: Record, memory: Callable[[int, int], memoryview]) -> None:
        """Read a record, block by block."""
        self._find(record)
        fill = self._file.readinto if record.method == STORED else _inflater(self._file, record)
        checksum = 0
        for position in range(0, record.size, BLOCK):
            block = memory(position, min(BLOCK, record.size - position))
            if fill(block) != len(block):
                raise Malformed(f"the end of {record} in it is missing")
            checksum = zlib.crc32(block, checksum)
        if self.has_checksums and checksum != record.checksum:
            raise Malformed(f"the checksum of {record} in it is wrong")

    def _find(self, record: Record) -> None:
        """Go to the first byte of a record's content."""
        *_, name, additional = self._unpacked(_HEADER, record.offset, b"PK\3\4")
        if self._file.read(name) != record.name:
            raise Malformed(f"its directory is wrong about {record}")
        self._file.seek(additional, 1)

    def _unpacked(self, form: struct.Struct, offset: int, signature: bytes) -> tuple:
        if 0 <= offset <= self.file_size - form.size:
            self._file.seek(offset)
            values = form.unpack(self._file.read(form.size))
            if values[0] == signature:
                return values
        raise Malformed("its directory is missing or damaged")

    def _directory(self) -> Iterator[Record]:
        count, size, offset = self._end()
        if not 0 <= offset <= offset + size <= self.file_size or count * _ENTRY.size > size:
            raise Malformed("its directory is missing or damaged")
        if count > MOST_RECORDS:
            raise Refused(f"it has {count:,} records, more than {MOST_RECORDS:,}")
        for _ in range(count):
            yield self._entry(offset)
            offset = self._file.tell()

    def _end(self) -> tuple[int, int, int]:
        """How many records the archive has, and the size and place of its directory."""
        start = max(0, self.file_size - LONGEST_COMMENT - _END.size)
        self._file.seek(start)
        place = start + self._file.read().rfind(b"PK\5\6")
        *_, count, size, offset, _ = self._unpacked(_END, place if place >= start else -1, b"PK\5\6")
        if place >= _END_64_LOCATOR.size:
            self._file.seek(place - _END_64_LOCATOR.size)
            signature, _, end, _ = _END_64_LOCATOR.unpack(self._file.read(_END_64_LOCATOR.size))
            if signature == b"PK\6\7":
                *_, count, size, offset = self._unpacked(_END_64, end, b"PK\6\6")
        return count, size, offset

    def _entry(self, offset: int) -> Record:
        values = self._unpacked(_ENTRY, offset, b"PK\1\2")
        flags, method, checksum, packed, size = values[3], values[4], *values[7:10]
        name_size, additional_size, comment_size, place = *values[10:13], values[16]
        name, additional = self._file.read(name_size), self._file.read(additional_size)
        self._file.seek(comment_size, 1)
        long = _long_numbers(additional)
        size, packed, place = (next(long, -1) if number == _LONG else number for number in (size, packed, place))
        if flags & 1 or method not in (STORED, DEFLATED):
            raise Malformed(
                f"its record {shown(name.decode('utf-8', 'replace'))} is packed in another way than torch's"
            )
        if min(size, packed, place) < 0 or (method == STORED and size != packed) or place + packed > self.file_size:
            raise Malformed(f"its directory is wrong about {shown(name.decode('utf-8', 'replace'))}")
        return Record(name, method, checksum, packed, size, place)


def _long_numbers(additional: bytes) -> Iterator[int]:
    """The numbers of 64 bits in an entry's additional field."""
    while len(additional) >= 4:
        kind, size = struct.unpack_from("<2H", additional)
        if kind == 1:
            numbers = additional[4 : 4 + size]
            yield from (number for (number,) in struct.iter_unpack("<q", numbers[: len(numbers) // 8 * 8]))
        additional = additional[4 + size :]


def _inflater(file: BinaryIO, record: Record) -> Callable[[memoryview], int]:
    """Make a function that fills a block with the next bytes of a record that was compressed."""
    unpacker, left = zlib.decompressobj(-zlib.MAX_WBITS), record.packed

    def fill(block: memoryview) -> int:
        nonlocal left
        position = 0
        while position < len(block):
            data = unpacker.unconsumed_tail
            if not data:
                data = file.read(min(left, BLOCK))
                left -= len(data)
            try:
                found = unpacker.decompress(data, len(block) - position)
            except zlib.error as error:
                raise Malformed(f"{record} in it cannot be unpacked ({error})") from None
            if not (data or found):
                break
            block[position : position + len(found)] = found
            position += len(found)
        return position

    return fill

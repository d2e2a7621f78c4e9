"""Digests of files, by which a reader notices that a file is no longer the one that was written."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.atomic_write import atomic_write

SMALL_BYTES = 2**20  # files up to this size are read whole whenever they are opened
BLOCK_BYTES = 2**17  # as much as Linux reads ahead
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_BLOCKS_HEAD = b"sha256 %d\n" % BLOCK_BYTES
_DIGEST_BYTES = 32


def describe(path: Path) -> dict[str, object]:
    """Describe a file: its size, the digest of its content and, of a large file, the digest of a sample."""
    size = path.stat().st_size
    found: dict[str, object] = {"bytes": size, "sha256": digest_of(path)}
    if size > SMALL_BYTES:
        found["sample_sha256"] = _sample_digest(path, size)
    return found


def check(path: Path, expected: Mapping[str, object], whole: bool = False) -> None:
    """Compare a file with its description."""
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise ValueError(_damaged(path, f"{size:,} bytes instead of {expected['bytes']:,}"))
    by_sample = size > SMALL_BYTES and not whole
    found = _sample_digest(path, size) if by_sample else digest_of(path)
    if found != expected.get("sample_sha256" if by_sample else "sha256"):
        raise ValueError(_damaged(path, "its bytes have changed"))


def _damaged(path: Path, what: str) -> str:
    return f"{path}: not the file that preprocessing wrote: {what}. Restore the file from a copy, or preprocess again"


def digest_of(path: Path) -> str:
    """Digest the content of a file (SHA-256, hexadecimal)."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(SMALL_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _sample_digest(path: Path, size: int) -> str:
    """Digest blocks spread evenly over a file, the first and the last among them."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for number in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


class BlockHasher:
    """Digests a file block by block while it is written."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []
        self._block, self._size = hashlib.sha256(), 0

    def update(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        rest = memoryview(data)
        while len(rest):
            part = rest[: BLOCK_BYTES - self._size % BLOCK_BYTES]
            self._block.update(part)
            self._size += len(part)
            rest = rest[len(part) :]
            if self._size % BLOCK_BYTES == 0:
                self._digests.append(self._block.digest())
                self._block = hashlib.sha256()

    def write(self, path: Path) -> None:
        """Write the digests of a file that :func:`check` does not read whole; leave none of an earlier, larger file."""
        path.unlink(missing_ok=True)
        if self._size <= SMALL_BYTES:
            return
        last = [self._block.digest()] if self._size % BLOCK_BYTES else []
        with atomic_write(path) as unfinished:
            unfinished.write_bytes(_BLOCKS_HEAD + b"".join([*self._digests, *last]))


class BlockDigests:
    """The digests of a file's blocks; each block is compared once, when it is first read.

    Processes forked from this one share the note of what has been compared.
    """

    def __init__(self, path: Path, blocks: Path, content: np.ndarray) -> None:
        self._path, self._content = path, content
        count = -(-len(content) // BLOCK_BYTES)
        expected = len(_BLOCKS_HEAD) + count * _DIGEST_BYTES
        digests = blocks.read_bytes() if blocks.stat().st_size == expected else b""
        if not digests.startswith(_BLOCKS_HEAD):
            raise ValueError(f"{blocks}: not the digests of {path.name}; preprocess again")
        self._digests = digests[len(_BLOCKS_HEAD) :]
        self._compared = np.frombuffer(mmap.mmap(-1, max(count, 1)), np.uint8)

    def check(self, first: int, end: int) -> None:
        """Compare the blocks of the bytes from ``first`` to ``end``."""
        for block in range(first // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if not self._compared[block]:
                start = block * BLOCK_BYTES
                digest = hashlib.sha256(self._content[start : start + BLOCK_BYTES].data).digest()
                if digest != self._digests[block * _DIGEST_BYTES : (block + 1) * _DIGEST_BYTES]:
                    raise ValueError(_damaged(self._path, f"bytes from {start:,} on have changed"))
                self._compared[block] = 1

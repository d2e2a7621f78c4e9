"""Digests of files, by which a reader notices that a file is no longer the one that was written."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

SMALL_BYTES = 2**20  # files up to this size are read whole whenever they are opened
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def describe(path: Path) -> dict[str, object]:
    """Describe a file: its size, the digest of its content and, of a large file, the digest of a sample."""
    size = path.stat().st_size
    found: dict[str, object] = {"bytes": size, "sha256": digest_of(path)}
    if size > SMALL_BYTES:
        found["sample_sha256"] = _sample_digest(path, size)
    return found


def check(path: Path, expected: Mapping[str, object], whole: bool = False) -> None:
    """Compare a file with its description.

    Args:
        path: the file.
        expected: the description that :func:`describe` gave when the file was written.
        whole: read a large file whole. Otherwise its size and 64 blocks of 4 KiB are compared, which notices a file
            that was cut, swapped or written over, but hardly a single flipped bit.

    Raises:
        ValueError: the file is another one.
    """
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise ValueError(_damaged(path, f"{size:,} bytes instead of {expected['bytes']:,}"))
    by_sample = size > SMALL_BYTES and not whole
    found = _sample_digest(path, size) if by_sample else digest_of(path)
    if found != expected["sample_sha256" if by_sample else "sha256"]:
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

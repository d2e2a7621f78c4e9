"""Digests of files, by which a reader notices that a file is no longer the one that was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

SMALL_BYTES = 2**20  # files up to this size are read whole whenever they are opened, of others the size is compared


def describe(path: Path) -> dict[str, object]:
    """A file's size and the digest of its content."""
    return {"bytes": path.stat().st_size, "sha256": digest_of(path)}


def check(path: Path, expected: Mapping[str, object], whole: bool = False) -> None:
    """Compare a file with its description: its size, and of a small file, or where ``whole``, its content."""
    size, change = path.stat().st_size, None
    if size != expected["bytes"]:
        change = f"{size:,} bytes instead of {expected['bytes']:,}"
    elif (whole or size <= SMALL_BYTES) and digest_of(path) != expected.get("sha256"):
        change = "its bytes have changed"
    if change:
        raise ValueError(
            f"{path}: not the file that preprocessing wrote: {change}. Restore it from a copy, or preprocess again"
        )


def digest_of(path: Path) -> str:
    """Digest the content of a file (SHA-256, hexadecimal)."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(SMALL_BYTES):
            digest.update(block)
    return digest.hexdigest()

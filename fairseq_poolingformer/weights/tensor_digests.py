"""SHA-256 of every tensor of a ``.safetensors`` file, in the file's own metadata.

Any reader of the format takes such a file. One here compares the digests; a file without them is read as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fairseq_poolingformer.text.atomic_write import atomic_write

METADATA, KEY = "__metadata__", "sha256"
_LENGTH_BYTES = 8  # before the header
_MAX_HEADER_BYTES = 100_000_000  # safetensors' own bound


class ChangedTensorsError(SafetensorError, ValueError):
    """A tensor is not the one that was written."""


def save(state: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors with their digests, for which the header has room from the start: the file is written once."""
    blank = json.dumps(dict.fromkeys(sorted(state), "0" * 64))
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(state), path, metadata={"format": "pt", KEY: blank})
    path.chmod(mode)  # safetensors' own lets only the owner read it
    header, start = _read_header(path)
    found = json.dumps(_digests(path, header, start))
    with open(path, "r+b") as file:
        text = file.read(start).replace(json.dumps(blank).encode(), json.dumps(found).encode())
        file.seek(0)
        file.write(text)


def add_digests(path: Path) -> None:
    """Add the digests to a file that has none; this writes it anew, and renames it when it is whole."""
    header, start = _read_header(path)
    if KEY in header.setdefault(METADATA, {}):
        return
    header[METADATA][KEY] = json.dumps(_digests(path, header, start))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # so that tensors are aligned
    with atomic_write(path) as unfinished, open(path, "rb") as old, open(unfinished, "wb") as new:
        new.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        old.seek(start)
        shutil.copyfileobj(old, new, 2**20)


def check_digests(path: Path) -> None:
    """Compare every tensor with its digest, where the file has digests."""
    header, start = _read_header(path)
    text = header.get(METADATA, {}).get(KEY)
    if text is None:
        return
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        expected = None
    found = _digests(path, header, start)
    if expected != found:
        names = found if not isinstance(expected, dict) else [n for n in found if expected.get(n) != found[n]]
        raise ChangedTensorsError(
            f"{path}: {', '.join(list(names)[:3]) or 'a tensor'} changed since the file was written. "
            "Copy or download it again"
        )


def check_folder(folder: Path) -> None:
    """Check every file of weights in a model's folder; raises what :func:`check_digests` raises."""
    for path in _weights(folder):
        check_digests(path)


def shapes_in_folder(folder: Path) -> dict[str, list[int]]:
    """Return the shape of every tensor in a model's folder, from its files' headers alone."""
    headers = [_read_header(path)[0] for path in _weights(folder)]
    return {name: entry["shape"] for header in headers for name, entry in header.items() if name != METADATA}


def add_to_folder(folder: Path) -> None:
    """Add digests to every file of weights in a model's folder."""
    for path in _weights(folder):
        add_digests(path)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("model*.safetensors"))


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and where its tensors begin."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size > min(os.fstat(file.fileno()).st_size, _MAX_HEADER_BYTES):
            raise ChangedTensorsError(f"{path}: the header is longer than the file")
        return json.loads(file.read(size)), _LENGTH_BYTES + size


def _digests(path: Path, header: Mapping[str, Any], start: int) -> dict[str, str]:
    """Return the digest of each tensor: of its type, its shape and its bytes."""
    content = np.memmap(path, np.uint8, mode="r")

    def digest(name: str) -> str:
        entry = header[name]
        first, end = entry["data_offsets"]
        found = hashlib.sha256(f"{entry['dtype']} {entry['shape']}\n".encode())
        found.update(content[start + first : start + end])
        return found.hexdigest()

    names = sorted(name for name in header if name != METADATA)
    with ThreadPoolExecutor() as pool:  # hashing many bytes lets other threads run
        return dict(zip(names, pool.map(digest, names), strict=True))

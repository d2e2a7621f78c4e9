"""Tiles that ``poolingformer doctor --tune`` has measured: a JSON file of numbers, each of which is checked.

``{"NVIDIA H100 80GB HBM3": {"2 bytes, 64 numbers": {"forward": [64, 64, 4, 2], "backward_queries": …}}}``: name of the
GPU -> sizes of a number and of a vector, filled up to a power of two -> kernel -> its tile.
"""

from __future__ import annotations

import json
import logging
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

LARGEST_FILE = 2**16  # bytes
_SIZES = re.compile(r"([24]) bytes, (16|32|64|128|256) numbers")
_POWERS = frozenset({1, 2, 4, 8, 16, 32, 64, 128, 256})
KERNELS = ("forward", "backward_queries", "backward_keys")
Tile = tuple[int, ...]  # queries, keys, warps, stages
Stored = dict[str, dict[tuple[int, int], dict[str, Tile]]]  # GPU -> bytes of a number, numbers of a vector -> by kernel


def tile_file() -> Path:
    """Where measured tiles are."""
    return Path(os.path.expanduser("~/.cache/fairseq_poolingformer/tiles.json"))


@cache
def stored_tiles() -> Stored:
    """The measured tiles; none, with a warning, where the file is bad."""
    path = tile_file()
    try:
        return read_tiles(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s is not used: %s; remove it, and `poolingformer doctor --tune` makes another", path, error)
        return {}


def read_tiles(path: Path) -> Stored:
    """Read a file of tiles.

    Raises:
        ValueError: something in it is not a tile.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"it has more than {LARGEST_FILE} bytes")
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("its objects are nested too deeply") from None
    return {gpu: dict(_row(*item) for item in _object(rows, gpu).items()) for gpu, rows in _object(value, "it").items()}


def text_of(stored: Stored) -> str:
    """The contents of a file of tiles."""
    named = {
        gpu: {f"{size} bytes, {width} numbers": tiles for (size, width), tiles in rows.items()}
        for gpu, rows in stored.items()
    }
    return json.dumps(named, indent=1, ensure_ascii=False) + "\n"


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def _row(sizes: str, kernels: Any) -> tuple[tuple[int, int], dict[str, Tile]]:
    found = _SIZES.fullmatch(sizes)
    if found is None or set(_object(kernels, sizes)) != set(KERNELS):
        raise ValueError(f"{sizes!r} does not name sizes, or its kernels are not {', '.join(KERNELS)}")
    return (int(found[1]), int(found[2])), {name: _tile(name, x) for name, x in kernels.items()}


def _tile(name: str, value: Any) -> Tile:
    """A tile of 16 to 256 queries and keys, 1 to 16 warps, 1 to 8 stages."""
    if isinstance(value, list) and len(value) == 4 and all(type(x) is int for x in value):
        queries, keys, warps, stages = value
        if {queries, keys, warps} <= _POWERS and min(queries, keys) >= 16 >= warps and 1 <= stages <= 8:
            return tuple(value)
    raise ValueError(f"{name} has no tile (queries, keys, warps, stages), but {str(value)[:40]}")

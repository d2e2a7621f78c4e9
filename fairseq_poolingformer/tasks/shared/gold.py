"""Right answers that several files have, and predictions, which must be of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Right = TypeVar("Right")
Found = TypeVar("Found")


def merged(paths: Sequence[Path], read: Callable[[Path], Mapping[Key, Right]]) -> dict[Key, Right]:
    """What ``read`` makes of each file, of all files together."""
    right: dict[Key, Right] = {}
    for path in map(Path, paths):
        for key, value in read(path).items():
            if right.setdefault(key, value) != value:
                raise ValueError(f"{path}: {key!r} has another right answer than in another gold file; leave one out")
    return right


def compared(
    gold: Sequence[Path],
    predictions: Path,
    read_gold: Callable[[Path], Mapping[Key, Right]],
    read_predictions: Callable[[Path], Mapping[Key, Found]],
) -> tuple[dict[Key, Right], Mapping[Key, Found]]:
    """The right answers of all files, and the predictions, of which there is one at least."""
    right, found = merged(gold, read_gold), read_predictions(Path(predictions))
    if not found:
        raise ValueError(f"{predictions}: no predictions in it")
    check_known(predictions, found, right)
    return right, found


def check_known(predictions: Path, found: Iterable[Key], right: Container[Key] | Iterable[Key]) -> None:
    """Raise ValueError for the first prediction that is of no key of the gold files."""
    unknown = next((key for key in found if key not in right), None)
    if unknown is not None:
        same = next((key for key in right if str(key).lstrip("0") == str(unknown).lstrip("0")), None)
        cause = "are they of another split?" if same is None else f"their {same!r} is another id"
        raise ValueError(f"{predictions}: the gold files do not have {unknown!r}; {cause}")

"""Splits that a file names document by document."""

import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_poolingformer.text.json_file import read_json_file

from .records import InputError, Record
from .run import Split

SPLITS = ("train", "valid", "test")
_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}


@dataclass(frozen=True)
class NamedSplits:
    """The documents of each split.

    Attributes:
        file: where they are named.
        ids: of each split, as :func:`plain_id` writes them; a document may be in several.
        known: of all documents; some may be in no split.
    """

    file: Path
    ids: Mapping[str, frozenset[str]]
    known: frozenset[str]

    def divide(
        self, records: Callable[[], Iterator[Record]], size: int, id_of: Callable[[Record], str]
    ) -> dict[str, Split]:
        """Divide records of so many bytes of input; ``id_of`` gives a record's id.

        Records that are no known document go to train, which rejects them.
        """
        return {
            split: Split(functools.partial(self._chosen, split, records, id_of), size)
            for split in SPLITS
            if split in self.ids
        }

    def _chosen(
        self, split: str, records: Callable[[], Iterator[Record]], id_of: Callable[[Record], str]
    ) -> Iterator[Record]:
        """Read the records of a split; each carries the progress of those before it."""
        progress, missing = 0, set(self.ids[split])
        for record in records():
            progress += record.progress
            name = plain_id(id_of(record))
            if name in self.ids[split] or (split == "train" and name not in self.known):
                missing.discard(name)
                yield replace(record, progress=progress)
                progress = 0
        if missing:
            raise InputError(
                f"--splits {self.file}: {len(missing)} of {split} are not in the input, such as {min(missing)}"
            )

    def notes(self) -> list[str]:
        """Say what a reader of figures must know: documents in several splits, and in none."""
        lines = []
        for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
            members = self.ids.get(split, frozenset())
            if shared := len(members & self.ids.get(other, frozenset())):
                lines.append(
                    f"{shared} of {len(members)} documents of {split} are in {other} as well, as {self.file.name} has "
                    f"it: figures on {split} are not those of unseen documents"
                )
        left_out = len(self.known - frozenset().union(*self.ids.values()))
        return lines + [f"{left_out} documents are in no split of {self.file.name}"] * bool(left_out)


def plain_id(name: str) -> str:
    """Return an id as splits are compared by: of ``0000012`` and ``12``, both are ``12``."""
    return str(int(name)) if name.isascii() and name.isdigit() and len(name) < 19 else name


def read(path: Path, known: Collection[str]) -> NamedSplits:
    """Read the splits of documents.

    Args:
        path: a JSON object of lists of ids under ``train``, ``valid`` or ``dev``, and ``test``; or lines of an id, a
            blank and a split.
        known: the ids of all documents.

    Raises:
        InputError: the file is neither, names an unknown document, or one twice in a split.
    """
    documents = Counter(map(plain_id, known))
    twice = [name for name, count in documents.items() if count > 1]
    if twice:
        raise InputError(f"--splits {path}: several documents have the id {twice[0]}, with and without zeros before it")
    ids: dict[str, set[str]] = {}
    for split, name in _rows(path):
        members = ids.setdefault(_NAMES[split], set())
        if plain_id(name) not in documents:
            raise InputError(f"--splits {path}: {split} has {name!r}, and there is no such document")
        if plain_id(name) in members:
            raise InputError(f"--splits {path}: {split} has {name!r} twice")
        members.add(plain_id(name))
    if "train" not in ids:
        raise InputError(f"--splits {path}: no documents of train")
    return NamedSplits(path, {split: frozenset(members) for split, members in ids.items()}, frozenset(documents))


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each split and id."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--splits {path}: not UTF-8 (byte {error.start})") from error
    if content.lstrip().startswith("{"):
        for split, names in read_json_file(path).items():
            if not isinstance(names, list) or not all(type(name) in (int, str) for name in names):
                raise InputError(f"--splits {path}: {split!r} must be a list of ids, is {json.dumps(names)[:60]}")
            yield from ((_split(path, split), str(name)) for name in names)
        return
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            words = line.split()
            if len(words) != 2:
                raise InputError(f"--splits {path}, line {number}: must be an id and a split, is {line.strip()[:60]!r}")
            yield _split(path, words[1]), words[0]


def _split(path: Path, name: str) -> str:
    if name not in _NAMES:
        raise InputError(f"--splits {path}: {name!r} is none of {', '.join(_NAMES)}")
    return name

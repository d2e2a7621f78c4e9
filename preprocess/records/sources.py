"""Data sources: files, globs and folders, and the splits that their names tell."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_poolingformer.options import matching
from fairseq_poolingformer.text.data_folder import digest_of

from ..pipeline.records import describe_file
from ..pipeline.splits import SPLIT_OF
from . import texts
from .keys import OTHERWISE

_WORDS = re.compile(r"[a-z]+")
_LOADED = 'load_dataset(…, split="train")'
_SAVED = {"state.json": "load_from_disk({!r})", "dataset_dict.json": 'load_from_disk({!r})["train"]'}  # by datasets


@dataclass(frozen=True)
class Source:
    """One thing that is read from its beginning to its end."""

    path: Path  # a file, or a folder of texts
    other: Path | None = None  # the file of the other side of line pairs
    # of a folder of texts, those of :func:`~preprocess.records.texts.grouped`
    entries: Sequence[Mapping[str, Path | str]] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        """How many bytes of input it is."""
        return sum(path.stat().st_size for path in self._paths()) if self.entries else self.path.stat().st_size

    def _paths(self) -> list[Path]:
        return [value for entry in self.entries for value in entry.values() if isinstance(value, Path)]

    def describe(self) -> list[dict[str, object]]:
        """Identify it, whatever folder it is in."""
        if not self.entries:
            return [describe_file(path) for path in (self.path, self.other) if path]
        digest = hashlib.sha256()
        for path in self._paths():
            digest.update(f"{path.relative_to(self.path).as_posix()}\0{digest_of(path)}\0".encode("utf-8", "replace"))
        return [{"file": self.path.name, "files": len(self._paths()), "sha256": digest.hexdigest()}]


def expand(patterns: Sequence[str]) -> list[Source]:
    """List the sources of paths, glob patterns and folders, in order, sorted within, each once."""
    by_path: dict[Path, Source] = {}
    for pattern in patterns:
        if Path(pattern).is_dir():
            sources = _of_folder(Path(pattern))
        else:
            paths = matching(pattern)
            sources = [_of_file(Path(path)) for path in paths if Path(path).is_file()]
        if not sources and Path(pattern).is_dir():
            raise ValueError(f"{pattern}: no files in it")
        if not sources:
            raise ValueError(f"{pattern}: no such file" + (f"; {OTHERWISE}" if not Path(pattern).suffix else ""))
        for source in sources:
            by_path.setdefault(source.path.absolute(), source)
    return list(by_path.values())


def _of_file(path: Path) -> Source:
    pair = texts.pair_of(path)
    return Source(pair[0], pair[1]) if pair else Source(path)


def _of_folder(folder: Path) -> list[Source]:
    for name, loaded in _SAVED.items():
        if (folder / name).is_file():
            remedy = OTHERWISE.replace(_LOADED, loaded.format(str(folder)))
            raise ValueError(f"{folder}: a folder that datasets saved; {remedy}")
    if entries := texts.grouped(folder):
        return [Source(folder, entries=entries)]
    return list(map(_of_file, texts.files_of(folder)))


def splits_of(data: str, unnamed: bool = True) -> dict[str, list[Source]]:
    """The splits of data that one argument names, told by the names of its files or folders."""
    path = Path(data)
    named: dict[str, list[Source]] = {}
    folders = [one.name for one in path.iterdir() if one.is_dir()] if path.is_dir() else []
    if inner := sorted(name for name in folders if name.lower() in SPLIT_OF):
        files = sorted(one for one in path.iterdir() if one.is_file() and not texts.is_hidden(one.name))
        named = {name: _of_folder(path / name) for name in inner}
        there = {split_named(name) for name in inner}
        named |= {one.name: [_of_file(one)] for one in files if split_named(one.name) not in {None, *there}}
    else:
        for source in expand([data]):
            name = source.path.name
            if _known(name) and (former := named.get(name)):
                raise _two_forms(data, former[0], source)
            named.setdefault(name, []).append(source)
            unnamed = unnamed or not path.is_dir() or bool(source.entries)
    exact: dict[str, Source] = {}  # train.txt rather than training-notes.txt
    for name, sources in named.items():
        if (split := _known(name)) and sources:
            if split in exact:
                raise _two_forms(data, exact[split], sources[0])
            exact[split] = sources[0]
    splits: dict[str, list[Source]] = {}
    others: list[Source] = []
    for name, sources in named.items():
        split = split_named(name)
        if split is None:
            others += sources
        elif split not in exact or _known(name):
            splits.setdefault(split, []).extend(sources)
    return splits if "train" in splits or not (others and unnamed) else splits | {"train": others}


def _known(name: str) -> str | None:
    """The split whose very name a file has up to its first dot."""
    return SPLIT_OF.get(name.lower().partition(".")[0])


def _two_forms(data: str, first: Source, second: Source) -> ValueError:
    """``train.txt`` beside ``train.txt.gz`` is one and the same, and in two folders it is of two corpora."""
    return ValueError(f"{data}: both {first.path} and {second.path}; name files with --train, --valid and --test")


def split_named(name: str) -> str | None:
    """The split that a file's name tells: valid for ``val-00000-of-00002.parquet``."""
    splits = {SPLIT_OF[word] for word in _WORDS.findall(name.lower()) if word in SPLIT_OF}
    return splits.pop() if len(splits) == 1 else None

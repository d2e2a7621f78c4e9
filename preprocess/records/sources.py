"""Data sources: files, globs, folders, names on the Hub; and the splits that these hold."""

import codecs
import glob
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.text.data_folder import digest_of

from ..pipeline import json_stream
from ..pipeline.records import MAX_LINE_BYTES, InputError, describe_file, open_compressed
from ..pipeline.splits import SPLIT_OF
from . import arrow, texts

_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Source:
    """One thing that is read from its beginning to its end."""

    path: Path  # a file or a folder; of the Hub, the name
    split: str = ""  # on the Hub
    other: Path | None = None  # the file of the other side of line pairs
    # of a folder of texts, those of :func:`~preprocess.records.texts.grouped`
    entries: Sequence[Mapping[str, Path | str]] = field(default=(), compare=False)
    rows: Sequence | None = field(default=None, compare=False)  # of the Hub
    key: str = ""  # of a JSON object that has a list of records for each split

    @property
    def name(self) -> str:
        return f"{self.path}/{self.split}" if self.split else str(self.path)

    def lists(self) -> dict[str, "Source"]:
        """Those of a JSON object that has a list of records under the name of each split, and no other list."""
        if self.rows is not None or self.entries or self.other or arrow.format_of(self.path):
            return {}
        found = {}
        with self.open() as (content, _):
            if content.peek(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
                for key, kind in json_stream.openings(content, MAX_LINE_BYTES):
                    if kind == b"[" and key.lower() not in SPLIT_OF:
                        return {}
                    found |= {key: replace(self, key=key)} if kind == b"[" else {}
        return found

    @property
    def size(self) -> int:
        """How many bytes of input it is, or rows on the Hub."""
        if self.rows is not None:
            return len(self.rows)
        if self.entries:
            return sum(path.stat().st_size for path in self._paths())
        return self.path.stat().st_size

    def _paths(self) -> list[Path]:
        return [value for entry in self.entries for value in entry.values() if isinstance(value, Path)]

    def open(self) -> AbstractContextManager[tuple[BinaryIO, BinaryIO]]:
        """Open a file: its content, and the file on disk, whose position tells progress."""
        return open_compressed(self.path)

    def describe(self) -> list[dict[str, object]]:
        """Identify it, whatever folder it is in."""
        if self.rows is not None:
            found = {"hub": str(self.path), "split": self.split}
            return [found | {"fingerprint": str(getattr(self.rows, "_fingerprint", ""))}]
        if self.entries:
            digest = hashlib.sha256()
            for path in self._paths():
                digest.update(
                    f"{path.relative_to(self.path).as_posix()}\0{digest_of(path)}\0".encode("utf-8", "replace")
                )
            return [{"file": self.path.name, "files": len(self._paths()), "sha256": digest.hexdigest()}]
        if self.key:
            digest = hashlib.sha256(f"{digest_of(self.path)}\0{self.key}".encode("utf-8", "replace")).hexdigest()
            return [{"file": self.path.name, "member": self.key, "sha256": digest}]
        return [describe_file(path) for path in (self.path, self.other) if path]


def expand(patterns: Sequence[str]) -> list[Source]:
    """List the sources of paths, glob patterns, folders and names on the Hub, in order, sorted within, each once."""
    found: dict[tuple[Path, str], Source] = {}
    for pattern in patterns:
        paths = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        if Path(pattern).is_dir():
            sources = _of_folder(Path(pattern))
        else:
            files = [Path(path) for path in paths if Path(path).is_file()]
            sources = list(map(_of_file, files))
        if not sources and not paths and arrow.looks_like_hub_name(pattern):
            sources = [source for splits in _of_hub(pattern).values() for source in splits]
        if not sources:
            raise InputError(f"{pattern}: no such file" if not Path(pattern).is_dir() else f"{pattern}: no files in it")
        for source in sources:
            found.setdefault((source.path.absolute(), source.split), source)
    return list(found.values())


def _of_file(path: Path) -> Source:
    pair = texts.pair_of(path)
    return Source(pair[0], other=pair[1]) if pair else Source(path)


def _of_folder(folder: Path) -> list[Source]:
    if (folder / arrow.STATE).is_file():
        return [Source(path) for path in arrow.saved_files(folder)]
    if (folder / arrow.SPLITS).is_file():
        return [source for name in arrow.saved_splits(folder) for source in _of_folder(folder / name)]
    if entries := texts.grouped(folder):
        return [Source(folder, entries=entries)]
    return list(map(_of_file, texts.files_of(folder)))


def _of_hub(name: str) -> dict[str, list[Source]]:
    found = arrow.hub(name)
    return {split: [Source(Path(name), split, rows=rows)] for split, rows in found.items()}


def splits_of(data: str, unnamed: bool = True) -> dict[str, list[Source]]:
    """The splits of data that one argument names, told by the names of its files, folders or lists."""
    path = Path(data)
    is_saved = (path / arrow.STATE).is_file()
    named: dict[str, list[Source]] = {}
    if (path / arrow.SPLITS).is_file():
        named = {name: _of_folder(path / name) for name in arrow.saved_splits(path)}
    elif path.is_dir() and not is_saved and (inner := _split_folders(path)):
        files = sorted(one for one in path.iterdir() if one.is_file() and not texts.is_hidden(one.name))
        named = {name: _of_folder(path / name) for name in inner}
        there = {split_named(name) for name in inner}
        named |= {one.name: [_of_file(one)] for one in files if split_named(one.name) not in {None, *there}}
    elif not path.exists() and not glob.glob(data, recursive=True) and arrow.looks_like_hub_name(data):
        named = _of_hub(data)
    else:
        for source in expand([data]):
            name = source.path.name
            if _known(name) and (former := named.get(name)):
                raise _two_forms(data, former[0], source)
            named.setdefault(name, []).append(source)
            unnamed = unnamed or not path.is_dir() or is_saved or bool(source.entries)
    if sum(map(len, named.values())) == 1:
        ((only,),) = named.values()
        named = {name: [source] for name, source in only.lists().items()} or named
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
    return SPLIT_OF.get(name.lower().rpartition("/")[2].partition(".")[0])


def _two_forms(data: str, first: Source, second: Source) -> InputError:
    """``train.txt`` beside ``train.txt.gz`` is one and the same, and in two folders it is of two corpora."""
    return InputError(f"{data}: both {first.name} and {second.name}; name files with --train, --valid and --test")


def _split_folders(path: Path) -> list[str]:
    return sorted(inner.name for inner in path.iterdir() if inner.is_dir() and inner.name.lower() in SPLIT_OF)


def split_named(name: str) -> str | None:
    """The split that a file's name tells: valid for ``data/val-00000-of-00002.parquet``."""
    words = _WORDS.findall(name.lower().rpartition("/")[2])
    found = {SPLIT_OF[word] for word in words if word in SPLIT_OF}
    if not found and "/" in name:
        return split_named(name.rpartition("/")[0])
    return found.pop() if len(found) == 1 else None

"""The splits of a corpus: the records of each, and how records are divided: by a hash, or as a file names them."""

import argparse
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_poolingformer.options import finite
from fairseq_poolingformer.text.json_file import read_json_file

from .records import Example, Parse, Record, parsed

SPLITS = ("train", "valid", "test")
SPLIT_OF = {  # by the names that people give splits
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "development"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}

ReadAll = Callable[[], Iterator[Record]]


@dataclass(frozen=True)
class SplitRecords:
    """The records of one split."""

    records: ReadAll  # reads them from the beginning at every call
    size: int  # how many bytes of input they are
    parse: Parse | None = None  # the split's own function from record to example, where it differs from the corpus's
    # the same records of each file by itself, where a file can be read without the others; else none
    files: "tuple[SplitRecords, ...]" = ()

    @classmethod
    def of_files(
        cls, read: Callable[[Sequence[Path]], Iterator[Record]], paths: Sequence[Path], parse: Parse | None = None
    ) -> "SplitRecords":
        """The records that ``read`` finds in files."""
        files = tuple(cls(functools.partial(read, [path]), path.stat().st_size, parse) for path in paths)
        return cls(functools.partial(read, paths), sum(one.size for one in files), parse, files)

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> "SplitRecords":
        """Records that are there already."""
        return cls(functools.partial(iter, records), sum(record.progress for record in records))

    def chosen(self, is_in: Callable[[Record], bool]) -> "SplitRecords":
        """Records for which a function returns True; each also carries the progress of the skipped ones before it."""
        files = tuple(one.chosen(is_in) for one in self.files)
        return replace(self, records=functools.partial(_chosen, self.records, is_in), files=files)


def _chosen(read: ReadAll, is_in: Callable[[Record], bool]) -> Iterator[Record]:
    progress = 0
    for record in read():
        progress += record.progress
        if is_in(record):
            yield replace(record, progress=progress)
            progress = 0


def place_of(text: str, seed: int = 0) -> int:
    """A document's place between 0 and 2^64, by which shares divide; case and blanks do not matter."""
    key = f"{seed} {' '.join(text.split()).casefold()}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


def input_of(record: Record, parse: Parse) -> str:
    """The texts of a record as ``parse`` makes them, or the record as it is where that rejects it."""
    example = parsed(record, parse)
    return "\n".join(example.texts) if isinstance(example, Example) else (record.data or b"").decode("utf-8", "replace")


def add_shares(parser: argparse.ArgumentParser, valid: float, test: float) -> None:
    """Add the options that take splits out of the training documents."""
    for split, default in (("valid", valid), ("test", test)):
        text = f"share of the training documents that a hash puts into {split}; 0: no such split"
        text += " (default: %(default)s)"
        parser.add_argument(f"--{split}-share", metavar="F", type=finite, default=default, help=text)
    text = "another number draws other splits (default: 0)"
    parser.add_argument("--split-seed", metavar="S", type=int, default=0, help=text)


def by_shares(
    args: argparse.Namespace, whole: SplitRecords, text_of: Callable[[Record], str]
) -> tuple[dict[str, SplitRecords], dict[str, object]]:
    """Divide records among train, valid and test as the options of :func:`add_shares` say, by a hash of their texts."""
    valid, test, seed = args.valid_share, args.test_share, args.split_seed
    if min(valid, test) < 0 or valid + test >= 1:
        raise ValueError(f"--valid-share {valid:g} --test-share {test:g}: must be 0 or more, and together less than 1")
    limits = {"train": (valid + test, 1.0), "valid": (0.0, valid), "test": (valid, valid + test)}

    def is_in(record: Record, first: float, end: float) -> bool:
        return first <= place_of(text_of(record), seed) / 2**64 < end

    splits = {
        split: whole.chosen(functools.partial(is_in, first=first, end=end))
        for split, (first, end) in limits.items()
        if first < end
    }
    return splits, {"valid_share": valid, "test_share": test, "split_seed": seed}


@dataclass(frozen=True)
class NamedSplits:
    """The documents of each split."""

    file: Path  # where they are named
    ids: Mapping[str, frozenset[str]]  # of each split, as :func:`plain_id` writes them; a document may be in several
    known: frozenset[str]  # of all documents; some may be in no split

    def divide(self, whole: SplitRecords, id_of: Callable[[Record], str]) -> dict[str, SplitRecords]:
        """Divide records by their ids; those that are not a known document go to train, which rejects them."""
        return {
            split: replace(whole, records=functools.partial(self._chosen, split, whole.records, id_of), files=())
            for split in SPLITS
            if split in self.ids
        }

    def _chosen(self, split: str, read: ReadAll, id_of: Callable[[Record], str]) -> Iterator[Record]:
        missing = set(self.ids[split])

        def is_in(record: Record) -> bool:
            name = plain_id(id_of(record))
            missing.discard(name)
            return name in self.ids[split] or (split == "train" and name not in self.known)

        yield from _chosen(read, is_in)
        if missing:
            raise ValueError(
                f"--splits {self.file}: {len(missing)} of {split} are not in the input, such as {min(missing)}"
            )

    def notes(self) -> list[str]:
        """Warn of documents in several splits, and in none."""
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


def read_splits(path: Path, known: Collection[str]) -> NamedSplits:
    """Read the splits of documents."""
    documents = Counter(map(plain_id, known))
    twice = [name for name, count in documents.items() if count > 1]
    if twice:
        raise ValueError(f"--splits {path}: several documents have the id {twice[0]}, with and without zeros before it")
    ids: dict[str, set[str]] = {}
    for split, name in _rows(path):
        members = ids.setdefault(SPLIT_OF[split], set())
        if plain_id(name) not in documents:
            raise ValueError(f"--splits {path}: {split} has {name!r}, and there is no such document")
        if plain_id(name) in members:
            raise ValueError(f"--splits {path}: {split} has {name!r} twice")
        members.add(plain_id(name))
    if "train" not in ids:
        raise ValueError(f"--splits {path}: no documents of train")
    return NamedSplits(path, {split: frozenset(members) for split, members in ids.items()}, frozenset(documents))


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each split and id."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"--splits {path}: not UTF-8 (byte {error.start})") from error
    if content.lstrip().startswith("{"):
        for split, names in read_json_file(path).items():
            if not isinstance(names, list) or not all(type(name) in (int, str) for name in names):
                raise ValueError(f"--splits {path}: {split!r} must be a list of ids, is {json.dumps(names)[:60]}")
            yield from ((_split(path, split), str(name)) for name in names)
        return
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            words = line.split()
            if len(words) != 2:
                raise ValueError(f"--splits {path}, line {number}: must be an id and a split, is {line.strip()[:60]!r}")
            yield _split(path, words[1]), words[0]


def _split(path: Path, name: str) -> str:
    if name not in SPLIT_OF:
        raise ValueError(f"--splits {path}: {name!r} is not one of {', '.join(SPLITS)}")
    return name

"""Archives of models, for ``from_pretrained``: unpacked without leaving their folder."""

import bz2
import contextlib
import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fairseq_poolingformer.checkpoint_reader.bounds import growth, shown
from fairseq_poolingformer.checkpoint_reader.errors import DAMAGE, CheckpointError, first_line
from fairseq_poolingformer.text import digests

MOST_FILES = 10_000
MOST_ENDS = 100  # times that Python's tarfile, which loops at some damaged headers, may read behind the end
DEEPEST = 20  # folders within folders
COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}  # by the first bytes


def unpack_within_folder(original: Callable, name: str | os.PathLike, **unused: Any) -> str:
    """See :func:`model_folder`."""
    return model_folder(name)


def model_folder(name: str | os.PathLike) -> str:
    """Return the folder of a model: the one that is named, or one with the content of the archive that is named.

    fairseq unpacks an archive wherever its entries say, over the user's own files if they say so, and removes the
    archive. Here an archive is kept, and unpacked once into the cache of torch.hub. Entries are files and folders below
    the archive's own folder; an archive with others is refused, and so is one that would grow beyond reason.
    """
    from fairseq import file_utils

    try:
        found = Path(file_utils.cached_path(os.fspath(name)))
    except OSError as error:
        raise FileNotFoundError(f"{name}: no such folder, and no such archive ({first_line(error)})") from error
    if found.is_dir():
        return str(found)
    folder = Path(file_utils.PYTORCH_FAIRSEQ_CACHE) / f"{digests.describe(found)['sha256']}.unpacked"
    if not folder.is_dir():
        with _new_folder(folder) as unfinished:
            _unpack(found, unfinished)
    return str(_without_top_folders(folder))


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name[:8]}.", dir=folder.parent))
    try:
        yield unfinished
        if not folder.is_dir():  # another process may have been quicker
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unpack(path: Path, folder: Path) -> None:
    try:
        with _stream(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in _checked(path, archive):
                target = folder / member.name
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.extractfile(member) as content, open(target, "xb") as file:
                    shutil.copyfileobj(content, file)
    except CheckpointError:
        raise
    except (*DAMAGE, tarfile.TarError, lzma.LZMAError) as error:
        raise CheckpointError(
            f"{path} cannot be unpacked ({shown(first_line(error))}). Give a whole .tar.gz, or the folder of a model"
        ) from error


class _Stream:
    """The bytes of an archive, unpacked. It stops where they grow beyond reason, be it by headers or by files."""

    def __init__(self, unpacked: BinaryIO, size: int) -> None:
        self._unpacked, self._size = unpacked, size
        self._total = self._ends = 0

    def read(self, size: int) -> bytes:
        data = self._unpacked.read(size)
        self._total += len(data)
        self._ends += not data
        if fault := growth(self._size, self._total):
            raise ValueError(fault)
        if self._ends > MOST_ENDS:
            raise EOFError("its end is missing")
        return data


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[_Stream]:
    with open(path, "rb") as file:
        head = file.read(5)
        file.seek(0)
        opened = next((opened for first, opened in COMPRESSED.items() if head.startswith(first)), None)
        with opened(file) if opened else file as unpacked:
            yield _Stream(unpacked, path.stat().st_size)


def _checked(path: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The entries of an archive, each checked when its header is read, before the content behind it."""
    total = 0
    for number, member in enumerate(archive):
        total += member.size
        fault = growth(path.stat().st_size, total)
        name = f"its entry '{shown(member.name)}'"
        if number >= MOST_FILES:
            fault = f"it has more than {MOST_FILES:,} entries"
        elif not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
            fault = f"{name} is a link or something else than a file or a folder"
        elif "\0" in member.name or PurePosixPath(member.name).is_absolute() or ".." in Path(member.name).parts:
            fault = f"{name} leaves the archive's folder"
        elif len(Path(member.name).parts) > DEEPEST:
            fault = f"{name} lies more than {DEEPEST} folders deep"
        if fault is not None:
            raise CheckpointError(f"{path} was not unpacked: {fault}. Take the archive from where it was made again")
        yield member


def _without_top_folders(folder: Path) -> Path:
    """The folder in which an archive's files begin."""
    content = list(folder.iterdir())
    return _without_top_folders(content[0]) if len(content) == 1 and content[0].is_dir() else folder

"""The Python installation itself as a summarization corpus: real long documents on every machine, no download.

A document is the source of a module, class or long function without its docstring; its summary is the docstring's first
paragraphs. The sources are those of the standard library and, without ``--no-packages``, of the installed packages.
"""

import argparse
import functools
import hashlib
import logging
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from .pipeline import command
from .pipeline.records import InputError, Record, pack, unpack
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .python_sources import Document, digest, drop_duplicates, find_modules, read_module

logger = logging.getLogger("preprocess")

DEFAULT_VOCABULARY = 8000


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Make the corpus of this Python installation.

    Raises:
        InputError: the installation has no sources.
    """
    roots = [Path(sysconfig.get_path("stdlib"))]
    if not args.no_packages:
        roots += dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    documents = read_documents(roots, args.workers)
    splits: dict[str, list[Record]] = {"train": [], "valid": [], "test": []}
    seen = hashlib.sha256()
    for document in sorted(documents, key=lambda document: digest(document.name)):
        record = pack(document.name, document.text, document.summary)
        seen.update(record.data)
        splits[split_of(document.module)].append(record)
    for split, records in splits.items():
        if not records:
            raise InputError(f"{split}: no document; {roots[0]} has too few sources with docstrings to learn from")
    return Corpus(
        name="stdlib",
        splits={split: SplitRecords.of_records(records) for split, records in splits.items()},
        parse=unpack,
        settings={"packages": not args.no_packages},
        inputs={"python": sys.version.split()[0], "documents": len(documents), "sha256": seen.hexdigest()},
    )


def split_of(module: str) -> str:
    """The split of a module and of everything in it: one module in twenty is valid, one test."""
    share = int(digest(module), 16) % 20
    return {0: "valid", 1: "test"}.get(share, "train")


def read_documents(roots: list[Path], workers: int) -> list[Document]:
    """Read all documents under the folders, in the order of the folders, without near-duplicates."""
    modules = [module for root in roots for module in find_modules(root)]
    unreadable, found = 0, []
    for documents in _map(modules, workers):
        unreadable += documents is None
        found += documents or []
    kept = list(drop_duplicates(found))
    logger.info(
        "%d modules read, %d left out as unreadable; %d documents, %d of them left out as near-duplicates",
        len(modules),
        unreadable,
        len(found),
        len(found) - len(kept),
    )
    return kept


def _map(modules: list[tuple[str, Path]], workers: int) -> Iterator[list[Document] | None]:
    if workers == 1:
        yield from map(read_module, modules)
        return
    try:
        with ProcessPoolExecutor(workers) as pool:
            yield from pool.map(read_module, modules, chunksize=32)
    except BrokenProcessPool as error:
        raise InputError("a process that reads sources died, most often for lack of memory: try --workers 1") from error


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("stdlib", __doc__, DEFAULT_VOCABULARY)
    text = "the standard library alone, without the installed packages"
    parser.add_argument("--no-packages", action="store_true", help=text)
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

"""Text files in UTF-8 to a data folder for language models: each file a document, or each block of lines in it.

Blank lines separate blocks. Every line end becomes a newline, and whitespace at both ends of a document is removed; the
text is unchanged otherwise.
"""

import argparse
import functools
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.text.input_files import TO_UTF_8

from .pipeline import command, documents
from .pipeline.records import Example, Record, Reject, Skipped, describe_files, expand, read_files
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords

MAX_DOCUMENT_BYTES = 64 * 2**20


def parse(record: Record, min_chars: int = 1) -> Example | Reject | Skipped:
    """Make a document of a record; its id is its file and line."""
    try:
        text = record.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = record.line + len((record.data[: error.start] + b" ").splitlines()) - 1
        return Reject(f"not UTF-8: byte {error.start} of the document, in line {line}: {error.reason}; {TO_UTF_8}")
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    if len(text) < min_chars:
        return Skipped(f"fewer than {min_chars} characters")
    return Example(f"{Path(record.file).name}:{record.line}", (text,))


def read_whole(paths: Sequence[Path], max_bytes: int = MAX_DOCUMENT_BYTES) -> Iterator[Record]:
    """Read every file as a record, without data where it is longer than ``max_bytes``."""
    return read_files(paths, functools.partial(_whole, max_bytes=max_bytes))


def _whole(content: BinaryIO, name: str, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    data = content.read(max_bytes + 1)
    yield 1, data if len(data) <= max_bytes else None


def read_blocks(paths: Sequence[Path], max_bytes: int = MAX_DOCUMENT_BYTES) -> Iterator[Record]:
    """Read every run of lines that are not blank as a record, without data where it is longer than ``max_bytes``."""
    return read_files(paths, functools.partial(_blocks, max_bytes=max_bytes))


def _blocks(content: BinaryIO, name: str, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    # a character of Latin-1 is a byte; newline="" ends a line at \r alone, too, and leaves it as it is
    with io.TextIOWrapper(content, encoding="latin-1", newline="") as text:
        lines = (line.encode("latin-1") for line in iter(functools.partial(text.readline, max_bytes + 1), ""))
        yield from _runs(lines, max_bytes)


def _runs(lines: Iterable[bytes], max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    line = 1
    for blank, run in itertools.groupby(lines, key=bytes.isspace):
        start, block, size = line, [], 0
        for piece in run:
            line += piece.endswith((b"\n", b"\r"))
            size += len(piece)
            if size <= max_bytes:
                block.append(piece)
        if not blank:
            yield start, b"".join(block) if size <= max_bytes else None


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Make the corpus that the command line names."""
    files = {"train": expand(args.input)}
    if args.valid:
        files["valid"] = expand(args.valid)
    read = functools.partial(
        {"file": read_whole, "block": read_blocks}[args.documents], max_bytes=args.max_document_bytes
    )
    return documents.make_corpus(
        args,
        lambda record: (record.data or b"").decode("utf-8", "replace"),
        name="plain_text",
        splits={split: SplitRecords.of_files(read, paths) for split, paths in files.items()},
        parse=functools.partial(parse, min_chars=args.min_chars),
        settings={
            "documents": args.documents,
            "min_chars": args.min_chars,
            "max_document_bytes": args.max_document_bytes,
        },
        inputs=describe_files(files),
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("plain_text", __doc__)
    group = parser.add_argument_group("input (UTF-8, plain, .gz or .bz2)")
    group.add_argument("--input", metavar="FILE", nargs="+", required=True, help="files or globs")
    text = "files or globs of the valid split; default: a share of --input"
    group.add_argument("--valid", metavar="FILE", nargs="+", help=text)
    text = "what a document is: a file, or lines up to a blank one (default: %(default)s)"
    group.add_argument("--documents", choices=["file", "block"], default="file", help=text)
    text = "reject longer documents without loading them"
    command.add_number(group, "--max-document-bytes", MAX_DOCUMENT_BYTES, text)
    documents.add_options(parser, min_chars=1)
    return parser


main = command.main_of(__name__, make_parser, make_corpus)

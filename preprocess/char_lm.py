"""Text for character language models: enwik8, text8 or any other file, bytes as symbols.

The data folder holds a split as ``SPLIT.bin`` and ``SPLIT.idx``, fairseq's memory-mapped format: one text in sequences
of a mebibyte. The dictionary is the same for every text.
"""

import argparse
import contextlib
import hashlib
import logging
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.command import run_command
from fairseq_poolingformer.options import positive
from fairseq_poolingformer.text.atomic_write import disk_errors, write_lines
from fairseq_poolingformer.text.byte_symbols import BYTE_SYMBOLS, ID_DTYPE, bytes_to_ids
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.input_files import opened
from fairseq_poolingformer.text.sequences import SequencesWriter

from .pipeline import data_folder
from .pipeline.command import log_to_stderr
from .pipeline.records import describe_file, expand
from .pipeline.report import progress
from .pipeline.splits import SPLITS
from .pipeline.tokenized import ENCODED_CONTROLS, SAMPLE, control_characters, tokens_in

logger = logging.getLogger("preprocess")

FORMAT = 1  # of the data folder; raise it when what is written changes
_BLOCK_BYTES = 2**20
_DESCRIPTION = """\
Make a data folder for --task char_lm from text: bytes are symbols. Of 100 MB, as enwik8 and text8 have, the first 90 MB
are for training, the next 5 MB for validation, the last 5 MB for the test; of other lengths, the same shares."""
_EPILOG = """\
examples:
  poolingformer preprocess char_lm --input enwik8.zip --output-folder data-bin/enwik8
  poolingformer preprocess char_lm --input text8.zip --output-folder data-bin/text8
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Make the data folder, and print the size and the digest of each split."""
    log_to_stderr()
    with disk_errors(args.output_folder, args.output_folder):
        made = make_folder(
            args.input,
            args.output_folder,
            limit=args.limit,
            sizes=args.splits,
            held_out=args.held_out,
            overwrite=args.overwrite,
        )
    for line in made.get("warnings", ()):
        logger.warning("%s", line)
    for split in SPLITS:
        print(f"{split:5} {made['bytes'][split]:>13,} bytes  sha256 {made['sha256'][split]}")


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="poolingformer preprocess char_lm",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--input", nargs="+", required=True, metavar="FILE", help="text, plain, .gz, .bz2 or .zip; several are joined")
    add("--output-folder", type=Path, required=True, metavar="DIR", help="the data folder to make")
    add("--limit", type=positive, metavar="N", help="use the first N bytes")
    splits = parser.add_mutually_exclusive_group()
    text = "bytes of train, valid and test, which must be all there are (default: 90, 5 and 5 of a hundred)"
    splits.add_argument("--splits", type=_sizes, metavar="A,B,C", help=text)
    text = "bytes of valid and of test, each; all before them is for training"
    splits.add_argument("--held-out", type=positive, metavar="N", help=text)
    add("--overwrite", action="store_true", help="replace another text in the folder")
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) != len(SPLITS) or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"give three whole numbers above 0; got {text}")
    return tuple(map(int, parts))


def make_folder(
    inputs: Sequence[str],
    folder: Path,
    *,
    limit: int | None = None,
    sizes: Sequence[int] | None = None,
    held_out: int | None = None,
    overwrite: bool = False,
) -> dict:
    """Make a data folder; one that is up to date is left as it is."""
    files = expand(inputs)
    settings = {
        "format": FORMAT,
        "corpus": "char_lm",
        "inputs": [describe_file(path) for path in files],
        "limit": limit,
        "splits": list(sizes) if sizes else None,
        "held_out": held_out,
    }
    made_folder = DataFolder(folder, BYTES)
    done = data_folder.finished(made_folder, settings, overwrite)
    if done is not None:
        logger.info("%s is up to date", folder)
        return done
    with data_folder.locked(folder):
        done = data_folder.finished(made_folder, settings, overwrite)  # by another process meanwhile
        if done is not None:
            return done
        controls = Counter()
        with _joined(files, folder, limit, controls) as (text, total):
            warnings = control_characters(", ".join(inputs), controls)
            sizes = split_sizes(total, sizes if held_out is None else (total - 2 * held_out, held_out, held_out))
            kind = tokens_in(text.read(SAMPLE).decode("utf-8", "replace"))
            text.seek(0)
            if kind is not None:
                warnings.append(
                    f"{', '.join(inputs)}: its words are {kind}, of which each digit would be a symbol; give the raw "
                    "text (prep_enwik8.py writes train.txt.raw)"
                )
            made_folder.corpus_path.unlink(missing_ok=True)  # from here on, the folder holds no finished text
            of_each = dict(zip(SPLITS, sizes, strict=True))
            digests = {split: _write_split(made_folder.array_path(split), text, of_each[split]) for split in SPLITS}
        write_lines(made_folder.dictionary_paths()[0], (f"{symbol} 1" for symbol in BYTE_SYMBOLS))
        made = settings | {"bytes": of_each, "sha256": digests, "warnings": warnings}
        made_folder.write_corpus(made, SPLITS)
        return made


def split_sizes(total: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the bytes of train, valid and test: the given ones, or 90, 5 and 5 of a hundred."""
    if sizes is None:
        sizes = (total * 90 // 100, total * 95 // 100 - total * 90 // 100, total - total * 95 // 100)
    if sum(sizes) != total:
        raise ValueError(
            f"--splits {','.join(map(str, sizes))} is {sum(sizes):,} bytes, but the text has {total:,}; "
            "--limit N uses the first N of them"
        )
    if min(sizes) < 1:
        raise ValueError(f"the text has {total:,} bytes, too few for three splits; is it the right file?")
    return tuple(sizes)


@contextlib.contextmanager
def _joined(
    files: Sequence[Path], folder: Path, limit: int | None, controls: Counter[str]
) -> Iterator[tuple[BinaryIO, int]]:
    """Give the whole text as one file, and its length, which decides the splits; count its control characters."""
    with tempfile.TemporaryFile(dir=folder) as text:
        total, last = 0, b""
        with progress("text", limit) as advance:
            for block in _blocks(files):
                block = block if limit is None else block[: limit - total]
                text.write(block)
                total += len(block)
                controls.update(map(bytes.decode, ENCODED_CONTROLS.findall(last + block)))
                last = block[-1:]  # a character may be cut in two
                advance(len(block))
                if total == limit:
                    break
        if limit is not None and total < limit:
            raise ValueError(f"--limit {limit:,}, but the text has only {total:,} bytes")
        text.seek(0)
        yield text, total


def _blocks(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with _open(path) as content:
            yield from iter(lambda content=content: content.read(_BLOCK_BYTES), b"")


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    if path.suffix != ".zip":
        with opened(path, utf_8=False) as content:
            yield content
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise ValueError(f"{path}: {len(members)} files in it, not one; unpack it and name the file to use")
            with archive.open(members[0]) as content:
                yield content
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: damaged zip file ({error}); fetch it again") from error


def _write_split(prefix: Path, text: BinaryIO, size: int) -> str:
    """Write the next ``size`` bytes of the text as ids, and return their digest."""
    digest = hashlib.sha256()
    with SequencesWriter(prefix, ID_DTYPE) as writer:
        while size:
            block = text.read(min(size, _BLOCK_BYTES))
            digest.update(block)
            writer.append(bytes_to_ids(block))
            size -= len(block)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

"""Made documents as a summarization corpus: five facts scattered in real prose, no download.

:mod:`preprocess.fact_documents` says what they are like. Prose is that of the standard library's docstrings. Valid and
test have names and prose of their own, so that a right summary of theirs was read and not remembered.
"""

import argparse
import functools
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

from .fact_documents import DocumentMaker, Shape
from .pipeline import command
from .pipeline.records import InputError, Record, pack, unpack
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .python_sources import digest, find_modules, read_prose

DEFAULT_VOCABULARY = 2000


def make_corpus(args: argparse.Namespace) -> Corpus:
    """The corpus that the command line asks for.

    Raises:
        InputError: the installation has no sources.
    """
    shape = Shape(words=tuple(args.words))
    counts = {"train": args.train, "valid": args.valid, "test": args.test}
    prose = {is_held_out: read_sentences(is_held_out) for is_held_out in (False, True)}
    splits = {}
    for split, count in counts.items():
        is_held_out = split != "train"
        maker = DocumentMaker(prose[is_held_out], is_held_out, shape)
        records = list(make_records(maker, split, count, args.seed))
        splits[split] = SplitRecords.of_records(records)
    return Corpus(
        name="facts",
        splits=splits,
        parse=unpack,
        settings={"counts": counts, "words": args.words, "seed": args.seed},
        inputs={"python": sys.version.split()[0], "prose": digest(json.dumps(list(prose.values())))},
    )


def make_records(maker: DocumentMaker, split: str, count: int, seed: int) -> Iterator[Record]:
    """``count`` documents, each from a random generator of its own."""
    for number in range(count):
        name = f"{split}-{number}"
        document = maker.make(Random(f"{seed} {name}"))
        yield pack(name, document.text, document.summary)


def read_sentences(is_held_out: bool) -> list[str]:
    """The standard library's prose: of the modules held out, one in ten, or of the others.

    Raises:
        InputError: the installation has no sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    modules = [module for module in find_modules(root) if (int(digest(module[0]), 16) % 10 == 0) == is_held_out]
    sentences = [sentence for module in read_prose(modules) for sentence in module]
    if not sentences:
        raise InputError(f"{root} has too few sources with docstrings to take prose from")
    return sentences


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("facts", __doc__, DEFAULT_VOCABULARY)
    made = parser.add_argument_group("documents")
    for split, count in (("train", 2000), ("valid", 100), ("test", 200)):
        command.add_number(made, f"--{split}", count, "how many")
    text = "words of prose of a document, the fewest and the most (default: 300 2000)"
    made.add_argument("--words", metavar=("MIN", "MAX"), nargs=2, type=int, default=[300, 2000], help=text)
    command.add_number(made, "--seed", 1, "another seed, other documents")
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

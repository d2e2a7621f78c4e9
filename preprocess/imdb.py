"""Make a data folder from IMDB's reviews (Maas et al. 2011): the folder aclImdb as it is released.

``train/pos``, ``train/neg``, ``test/pos`` and ``test/neg`` have a text file for each review. A share of the training
reviews becomes the split valid.
"""

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.classification.released import IMDB_LABELS, imdb_id

from .labelled_text import LabelledDocument, corpus_of, make_shared_parser
from .pipeline import command, splits
from .pipeline.records import MAX_LINE_BYTES, Record, Reject, describe_file
from .pipeline.run import Corpus


def read_reviews(paths: Sequence[Path]) -> Iterator[Record]:
    """Read every review as a record."""
    for path in paths:
        size = path.stat().st_size
        yield Record(str(path), 1, path.read_bytes() if size <= MAX_LINE_BYTES else None, size)


def parse(record: Record) -> LabelledDocument | Reject:
    """Make an example of a review; its folder is its label."""
    try:
        text = record.data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        return Reject(f"not UTF-8: byte {error.start}, {error.reason}")
    if not text:
        return Reject("empty document")
    path = Path(record.file)
    return LabelledDocument(imdb_id(path), (text,), path.parent.name)


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = make_shared_parser("imdb", __doc__)
    parser.add_argument("--input-folder", metavar="FOLDER", type=Path, required=True, help="the folder aclImdb")
    splits.add_shares(parser, valid=0.1, test=0.0)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    files = {
        split: [path for label in IMDB_LABELS for path in sorted((args.input_folder / split / label).glob("*.txt"))]
        for split in ("train", "test")
    }
    if not files["train"]:
        raise ValueError(f"--input-folder {args.input_folder}: no train/pos/*.txt and train/neg/*.txt in it")
    whole = {split: splits.SplitRecords.of_files(read_reviews, paths) for split, paths in files.items()}
    divided, settings = splits.by_shares(args, whole["train"], functools.partial(splits.input_of, parse=parse))
    if files["test"]:
        if "test" in divided:
            folder = args.input_folder / "test"
            raise ValueError(f"--test-share {args.test_share:g}: {folder} is the test split; give 0")
        divided["test"] = whole["test"]
    inputs = [[imdb_id(path), describe_file(path)["sha256"]] for paths in files.values() for path in sorted(paths)]
    return corpus_of(IMDB_LABELS, name="imdb", splits=divided, parse=parse, settings=settings, inputs=inputs)


main = command.main_of(__name__, make_parser, make_corpus)

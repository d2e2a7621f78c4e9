"""Make a data folder from IMDB's reviews (Maas et al. 2011): the folder aclImdb as it is released.

``train/pos``, ``train/neg``, ``test/pos`` and ``test/neg`` have a text file for each review. A share of the training
reviews becomes the split valid.
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.classification.scores import IMDB_LABELS, imdb_id

from .pipeline import command, labelled
from .pipeline.labelled import LabelledDocument
from .pipeline.records import InputError, Record, Reject, describe_file
from .pipeline.run import Split


def read_reviews(folder: Path) -> Iterator[Record]:
    """Read every review of ``train`` or ``test`` as a record."""
    for label in IMDB_LABELS:
        for path in sorted((folder / label).glob("*.txt")):
            data = path.read_bytes()
            yield Record(str(path), 1, data, len(data))


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = labelled.make_parser("imdb", __doc__.split("\n")[0])
    parser.add_argument("--input", metavar="FOLDER", type=Path, required=True, help="the folder aclImdb")
    labelled.add_shares(parser, valid=0.1, test=0.0)

    def make_corpus(args):
        folders = {split: args.input / split for split in ("train", "test")}
        files = {split: [*folder.glob("pos/*.txt"), *folder.glob("neg/*.txt")] for split, folder in folders.items()}
        if not files["train"]:
            raise InputError(f"--input {args.input}: no train/pos/*.txt and train/neg/*.txt in it")
        read = {split: functools.partial(read_reviews, folder) for split, folder in folders.items()}
        sizes = {split: sum(path.stat().st_size for path in paths) for split, paths in files.items()}
        splits, settings = labelled.shares(args, read["train"], sizes["train"])
        if files["test"]:
            if "test" in splits:
                raise InputError(f"--test-share {args.test_share:g}: {folders['test']} is the test split; give 0")
            splits["test"] = Split(read["test"], sizes["test"])
        inputs = [[imdb_id(path), describe_file(path)["sha256"]] for paths in files.values() for path in sorted(paths)]
        return labelled.make_corpus("imdb", splits, parse, IMDB_LABELS, settings, inputs)

    return command.main(parser, make_corpus, argv)


if __name__ == "__main__":
    sys.exit(main())

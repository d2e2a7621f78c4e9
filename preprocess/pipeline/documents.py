"""What the corpora of documents for language models share: options, the split by a hash, the layout."""

import argparse
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from fairseq_poolingformer.text.data_folder import DOCUMENTS, DOCUMENTS_WITH_TEXT
from preprocess.pipeline.encode import encode_texts
from preprocess.pipeline.parts import Parse
from preprocess.pipeline.records import InputError, Record
from preprocess.pipeline.run import Corpus, Split


def add_options(parser: argparse.ArgumentParser, min_chars: int) -> None:
    """Adds the options that all corpora of documents have.

    Args:
        parser: where to.
        min_chars: default of the option of that name.
    """
    options = parser.add_argument_group("documents")
    options.add_argument(
        "--min-chars",
        metavar="N",
        type=int,
        default=min_chars,
        help="skip documents of fewer characters (default: %(default)s)",
    )
    options.add_argument(
        "--valid-share",
        metavar="F",
        type=float,
        default=0.005,
        help="share of the documents that a hash puts into the valid split; 0: no such split (default: %(default)s)",
    )
    options.add_argument(
        "--write-text", action="store_true", help="write the text itself too, for reading: {split}.text.txt"
    )


def make_corpus(
    args: argparse.Namespace,
    name: str,
    read: dict[str, tuple[Callable[[], Iterator[Record]], int]],
    key: Callable[[Record], bytes],
    parse: Parse,
    settings: dict[str, object],
    inputs: object,
) -> Corpus:
    """A corpus of documents.

    Args:
        args: the options of :func:`add_options`.
        name: for people.
        read: for each split that is given by itself, a function that reads its records, and its size in bytes. Where
            there is no ``valid``, the hash of a key takes it out of ``train``.
        key: what decides a document's split.
        parse: record to example.
        settings: all that decides what ``parse`` and the records give, beside the split.
        inputs: what identifies the input.

    Raises:
        InputError: the share is none.
    """
    share = args.valid_share
    if not 0 <= share < 1:
        raise InputError(f"--valid-share {share:g}: must be 0 or more and less than 1")
    splits = {split: Split(records, size) for split, (records, size) in read.items()}
    if share and "valid" not in read:
        records, size = read["train"]
        for split in ("train", "valid"):
            splits[split] = Split(functools.partial(_choose, records, key, share, split), size)
        settings = settings | {"valid_share": share}
    layout = DOCUMENTS_WITH_TEXT if args.write_text else DOCUMENTS
    return Corpus(
        name=name,
        splits=splits,
        parse=parse,
        settings=settings,
        inputs=inputs,
        layout=layout,
        encode=functools.partial(encode_texts, layout=layout),
        entries={"keep_text": True} if args.write_text else {},
    )


def split_of(key: bytes, valid_share: float) -> str:
    """The split of a document: that of its key's hash, whatever else the corpus holds."""
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return "valid" if int.from_bytes(digest, "big") < valid_share * 2**64 else "train"


def _choose(
    read: Callable[[], Iterator[Record]], key: Callable[[Record], bytes], valid_share: float, split: str
) -> Iterator[Record]:
    """The records of one split; the progress of the others is counted with the one after them."""
    progress, found = 0, False
    for record in read():
        progress += record.progress
        if split_of(key(record), valid_share) == split:
            yield replace(record, progress=progress)
            progress, found = 0, True
    if not found:
        remedy = f"give a higher --valid-share than {valid_share:g}, or 0" if split == "valid" else "is it empty?"
        raise InputError(f"{split}: the input has no document for it; {remedy}")

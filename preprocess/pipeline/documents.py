"""Corpora of documents for language models: their options, the split by a hash, the layout."""

import argparse
import functools
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fairseq_poolingformer.tasks.masked_lm import DOCUMENTS, DOCUMENTS_WITH_TEXT

from .encode import encode_texts
from .parts import Parse
from .records import Example, InputError, Record
from .run import Corpus, Split

logger = logging.getLogger("preprocess")


def add_options(parser: argparse.ArgumentParser, min_chars: int) -> None:
    """Add the options that all corpora of documents have.

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
        help="share of the documents that a hash puts into the valid split, one at least; 0: no such split "
        "(default: %(default)s)",
    )
    options.add_argument(
        "--write-text", action="store_true", help="write the text itself too, for reading: {split}.text.txt"
    )


def make_corpus(
    args: argparse.Namespace,
    name: str,
    splits: Mapping[str, Split],
    key: Callable[[Record], bytes],
    parse: Parse,
    settings: dict[str, object],
    inputs: object,
) -> Corpus:
    """Make a corpus of documents.

    Args:
        args: the options of :func:`add_options`.
        name: for people.
        splits: ``train``, and ``valid`` where it is given by itself; otherwise the hash of a key takes it out of
            ``train``.
        key: the bytes whose hash decides a document's split.
        parse: record to example.
        settings: everything but the split that decides the records and what ``parse`` makes of them.
        inputs: identifies the input.

    Raises:
        InputError: ``--valid-share`` is out of range.
    """
    share = args.valid_share
    if not 0 <= share < 1:
        raise InputError(f"--valid-share {share:g}: must be 0 or more and less than 1")
    if share and "valid" not in splits:
        whole = splits["train"]
        limit = _valid_limit(whole.records, key, parse, share)
        splits = {
            split: Split(functools.partial(_choose, whole.records, key, limit, split), whole.size)
            for split in ("train", "valid")
        }
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


def hash_of(key: bytes) -> int:
    """A document's place between 0 and 2^64: those below the valid share of it are validated on."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


def _valid_limit(
    read: Callable[[], Iterator[Record]], key: Callable[[Record], bytes], parse: Parse, valid_share: float
) -> int:
    """The hash below which documents are valid: that of the share, or of one document where the share has none.

    Records are read up to the first that the share takes. Only where a small corpus has no such record, all are read,
    and a few of them parsed.
    """
    limit = int(valid_share * 2**64)
    least, chosen = 2**64, ""
    for record in read():
        place = hash_of(key(record))
        if place < least and isinstance(example := parse(record), Example):
            least, chosen = place, example.id
            if least < limit:
                return limit
    if chosen:
        logger.warning("--valid-share %g takes no document of this corpus; valid gets one: %s", valid_share, chosen)
    return least + 1


def _choose(
    read: Callable[[], Iterator[Record]], key: Callable[[Record], bytes], limit: int, split: str
) -> Iterator[Record]:
    """Read the records of one split; each carries the progress of the other split's records before it."""
    progress, found = 0, False
    for record in read():
        progress += record.progress
        if (hash_of(key(record)) < limit) == (split == "valid"):
            yield replace(record, progress=progress)
            progress, found = 0, True
    if not found:
        raise InputError(
            f"{split}: the input has no document for it. Is it empty? A valid split takes one document at least, and "
            "--valid-share 0 makes none"
        )

"""Corpora of documents for language models: their options, the split by a hash, the layout."""

import argparse
import functools
import logging
from collections.abc import Callable, Mapping

from fairseq_poolingformer.options import finite, natural
from fairseq_poolingformer.tasks.masked_lm import DOCUMENTS, DOCUMENTS_WITH_TEXT

from .command import add_number
from .encode import encode_texts
from .records import Example, Parse, Record, parsed
from .run import Corpus
from .splits import ReadAll, SplitRecords, place_of

logger = logging.getLogger("preprocess")


def add_options(parser: argparse.ArgumentParser, min_chars: int) -> None:
    """Add the options that all corpora of documents have; ``min_chars`` is the default of the option of that name."""
    options = parser.add_argument_group("documents")
    add_number(options, "--min-chars", min_chars, "skip documents of fewer characters", kind=natural)
    text = "share of the documents that a hash puts into the valid split, one at least; 0: no such split"
    add_number(options, "--valid-share", 0.005, text, "F", finite)
    text = "write the text itself too, for reading: {split}.text.txt"
    options.add_argument("--write-text", action="store_true", help=text)


def make_corpus(
    args: argparse.Namespace,
    text_of: Callable[[Record], str],
    *,
    splits: Mapping[str, SplitRecords],
    parse: Parse,
    settings: dict[str, object],
    **fields: object,
) -> Corpus:
    """Make a corpus of documents; ``text_of`` gives of a record the text whose hash divides."""
    share = args.valid_share
    if not 0 <= share < 1:
        raise ValueError(f"--valid-share {share:g}: must be 0 or more and less than 1")
    if share and "valid" not in splits:
        whole = splits["train"]
        limit = _valid_limit(whole.records, text_of, parse, share)
        splits = {
            "train": whole.chosen(lambda record: place_of(text_of(record)) >= limit),
            "valid": whole.chosen(lambda record: place_of(text_of(record)) < limit),
        }
        settings = settings | {"valid_share": share}
    layout = DOCUMENTS_WITH_TEXT if args.write_text else DOCUMENTS
    return Corpus(
        splits=splits,
        parse=parse,
        settings=settings,
        layout=layout,
        encode=functools.partial(encode_texts, layout=layout),
        entries={"keep_text": True} if args.write_text else {},
        **fields,
    )


def _valid_limit(read: ReadAll, text_of: Callable[[Record], str], parse: Parse, valid_share: float) -> int:
    """The hash below which documents are valid: that of the share, or of one document where the share has none."""
    limit = int(valid_share * 2**64)
    least, chosen, most = 2**64, "", -1
    for record in read():
        place = place_of(text_of(record))
        if not least <= place <= most and isinstance(example := parsed(record, parse), Example):
            if place < least:
                least, chosen = place, example.id
            most = max(most, place)
            if least < limit <= most:
                return limit
    if most < 0:  # train's rejects say why
        return 0
    if least == most:
        raise ValueError(
            f"only one document ({chosen}), and the valid split takes one: give --valid-share 0, or more documents "
            "(plain_text --documents block makes one of each block of lines)"
        )
    which = "every" if most < limit else "no"
    logger.warning("--valid-share %g takes %s document of this corpus; valid gets one: %s", valid_share, which, chosen)
    return least + 1

"""Requests for Comments (RFCs) and their abstracts, as Debian's doc-rfc packages install them.

A document is all sections of an RFC but boilerplate and references, headings kept, paragraphs on one line each; its
summary is the abstract. Of the RFCs with an abstract of 20 to 400 words and a body of more than 500, those whose number
is a multiple of 20 are test, and those that are ten above one valid. An RFC that replaces one of these, or was replaced
by one, through however many others, is left out of train.
"""

import argparse
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command
from .pipeline.encode import Encoded, encode_texts
from .pipeline.records import Example, InputError, Record, Reject, Skipped, describe_files, expand, open_compressed
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .plain_text import MAX_DOCUMENT_BYTES, read_whole
from .rfc_text import HEAD_LINES, Memo, decode, read_memo, replaced_numbers

ABSTRACT_WORDS = range(20, 401)
MORE_WORDS_THAN = 500  # of a body
_FILE = re.compile(r"rfc0*(\d+)\.txt(\.gz|\.bz2)?")
KIN = "another version of an RFC of valid or test"


def parse(record: Record, kin: frozenset[int] = frozenset()) -> Example | Skipped:
    """Make an example of a file.

    Args:
        record: the file.
        kin: numbers of the RFCs to leave out of train.
    """
    number = number_of(record.file)
    if number in kin:
        return Skipped(KIN)
    memo = read_memo(decode(record.data))
    if reason := why_unused(memo):
        return Skipped(reason)
    return Example(f"rfc{number}", (memo.body, memo.abstract))


def why_unused(memo: Memo) -> str:
    """Why an RFC is not in the corpus; "" where it is."""
    words = len(memo.abstract.split())
    if words not in ABSTRACT_WORDS:
        few = f"an abstract of fewer than {ABSTRACT_WORDS.start} words"
        return (
            (few if words < ABSTRACT_WORDS.start else f"an abstract of more than {ABSTRACT_WORDS.stop - 1} words")
            if words
            else "no abstract"
        )
    return "" if len(memo.body.split()) > MORE_WORDS_THAN else f"a body of {MORE_WORDS_THAN} words or fewer"


def split_of(number: int) -> str:
    """The split of an RFC."""
    return {0: "test", 10: "valid"}.get(number % 20, "train")


def number_of(path: str | Path) -> int:
    """The number of an RFC, which its file's name has."""
    return int(_FILE.fullmatch(Path(path).name)[1])


def find_files(patterns: Iterable[str]) -> dict[int, Path]:
    """The files of RFCs by number, ascending; of several, the first counts.

    Raises:
        InputError: a pattern names none, or a file of another name.
    """
    found: dict[int, Path] = {}
    for pattern in patterns:
        is_folder = Path(pattern).is_dir()
        paths = (
            sorted(path for path in Path(pattern).rglob("rfc*") if path.is_file()) if is_folder else expand([pattern])
        )
        paths = [path for path in paths if _FILE.fullmatch(path.name) or not is_folder]
        if not paths:
            raise InputError(f"{pattern}: no file in it is named rfcNUMBER.txt or .txt.gz")
        for path in paths:
            if not _FILE.fullmatch(path.name):
                raise InputError(f"{path}: is not named rfcNUMBER.txt or .txt.gz; its number decides the split")
            found.setdefault(number_of(path), path)
    return dict(sorted(found.items()))


def find_kin(files: Mapping[int, Path]) -> frozenset[int]:
    """The numbers of the training RFCs that replace a held-out one or were replaced by one, directly or not."""
    families: dict[int, set[int]] = {}
    for number, path in files.items():
        with open_compressed(path, utf_8=False) as (content, _):
            head = decode(b"".join(islice(content, HEAD_LINES)))
        for other in replaced_numbers(head):
            joined = families.get(number, {number}) | families.get(other, {other})
            families.update(dict.fromkeys(joined, joined))
    held_out = (family for number, family in families.items() if number in files and split_of(number) != "train")
    return frozenset(number for family in held_out for number in family if split_of(number) == "train")


def describe(
    args: argparse.Namespace,
    parse: Callable[..., Example | Reject | Skipped],
    read: Callable[..., Iterator[Record]] = read_whole,
    **fields: object,
) -> Corpus:
    """Describe a corpus of RFCs.

    Args:
        args: the options of :func:`add_input`.
        parse: takes a record and ``kin``.
        read: takes paths and ``max_bytes``.
        fields: the other attributes of the :class:`Corpus`.

    Raises:
        InputError: the input has no RFC.
    """
    files = find_files(args.input)
    paths: dict[str, list[Path]] = {"train": [], "valid": [], "test": []}
    for number, path in files.items():
        paths[split_of(number)].append(path)
    paths = {split: chosen for split, chosen in paths.items() if chosen}
    read = functools.partial(read, max_bytes=args.max_document_bytes)
    fields["settings"] = {"max_document_bytes": args.max_document_bytes, **fields.get("settings", {})}
    return Corpus(
        splits={split: SplitRecords.of_files(read, chosen) for split, chosen in paths.items()},
        parse=functools.partial(parse, kin=find_kin(files)),
        inputs=describe_files(paths),
        **fields,
    )


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options of the input."""
    group = parser.add_argument_group("input (plain, .gz or .bz2)")
    text = "folders such as /usr/share/doc/RFC, files or globs; files are named rfcNUMBER.txt"
    group.add_argument("--input", metavar="PATH", nargs="+", required=True, help=text)
    text = "reject longer documents without loading them"
    command.add_number(group, "--max-document-bytes", MAX_DOCUMENT_BYTES, text)


LAYOUT = replace(PAIRS, made_with="poolingformer-preprocess rfc")
WITH_DOCUMENTS = replace(LAYOUT, texts=(*LAYOUT.texts, "document"))


def encode_with_document(tokenizer: Tokenizer, example: Example) -> Encoded | Reject:
    """Encode an example, and keep the document with a blank line after it."""
    encoded = encode_texts(tokenizer, example, LAYOUT)
    if isinstance(encoded, Reject):
        return encoded
    return replace(encoded, texts={**encoded.texts, "document": example.texts[0] + "\n"})


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names.

    Raises:
        InputError: the input has no RFC.
    """
    if args.write_text:
        return describe(
            args, parse, name="rfc", layout=WITH_DOCUMENTS, encode=encode_with_document, entries={"keep_text": True}
        )
    return describe(args, parse, name="rfc", layout=LAYOUT)


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("rfc", __doc__)
    add_input(parser)
    text = "write the documents themselves too, blank lines between them: {split}.document.txt, for plain_text"
    parser.add_argument("--write-text", action="store_true", help=text)
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

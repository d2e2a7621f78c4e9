"""Make a data folder from Hyperpartisan news (Kiesel et al. 2019): the two XML files as they are released.

One file has the articles, the other the ground truth. A document is the title and the article's text. Shares of the
articles become the splits valid and test.
"""

import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from fairseq_poolingformer.downstream.labelled_files import HYPERPARTISAN_LABELS, read_ground_truth

from .pipeline import command, labelled
from .pipeline.labelled import LabelledDocument
from .pipeline.records import InputError, Record, Reject, describe_file, open_compressed

_BLOCK = 2**20
_ID = re.compile(rb'<article\b[^>]*?\bid="([^"]*)"')


def read_articles(path: Path, labels: Mapping[str, str]) -> Iterator[Record]:
    """Read every article as a record: its label, if there is one, a newline, and its element.

    Raises:
        InputError: the file ends inside an article, or has none.
    """
    with open_compressed(path) as (content, disk):
        buffer, line, position, found = b"", 1, 0, False
        while block := content.read(_BLOCK):
            buffer += block
            end = 0
            while (close := buffer.find(b"</article>", end)) >= 0:
                start = buffer.find(b"<article ", end, close)
                following = close + len(b"</article>")
                if start < 0:
                    raise InputError(f"{path}, line {line}: </article> without <article>; fetch the file again")
                line += buffer.count(b"\n", end, start)
                element = buffer[start:following]
                match = _ID.match(element)
                label = labels.get(match[1].decode("utf-8", "replace"), "") if match else ""
                yield Record(str(path), line, label.encode() + b"\n" + element, disk.tell() - position)
                line += element.count(b"\n")
                position, end, found = disk.tell(), following, True
            buffer = buffer[end:]
    if not found or b"<article " in buffer:
        raise InputError(f"{path}: {'ends inside an article' if found else 'no articles in it'}; fetch it again")


def parse(record: Record) -> LabelledDocument | Reject:
    """Make an example of an article."""
    label, _, element = record.data.partition(b"\n")
    try:
        article = ElementTree.fromstring(element)
    except ElementTree.ParseError as error:
        return Reject(f"broken XML: {error}")
    name = article.get("id", "")
    if not label:
        return Reject(f"no ground truth: article {name!r}")
    paragraphs = [article.get("title", ""), article.text or ""]
    for part in article:
        paragraphs += ["".join(part.itertext()), part.tail or ""]
    text = "\n".join(filter(None, (" ".join(paragraph.split()) for paragraph in paragraphs)))
    if not text:
        return Reject(f"empty document: article {name!r}")
    return LabelledDocument(name, (text,), label.decode())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = labelled.make_parser("hyperpartisan", __doc__.split("\n")[0])
    parser.add_argument("--articles", metavar="FILE", type=Path, required=True, help="articles-….xml, plain or .gz")
    parser.add_argument("--truth", metavar="FILE", type=Path, required=True, help="ground-truth-….xml")
    labelled.add_shares(parser, valid=0.1, test=0.1)

    def make_corpus(args):
        for path in (args.articles, args.truth):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        read = functools.partial(read_articles, args.articles, read_ground_truth(args.truth))
        splits, settings = labelled.shares(args, read, args.articles.stat().st_size)
        inputs = [describe_file(args.articles), describe_file(args.truth)]
        return labelled.make_corpus("hyperpartisan", splits, parse, HYPERPARTISAN_LABELS, settings, inputs)

    return command.main(parser, make_corpus, argv)


if __name__ == "__main__":
    sys.exit(main())

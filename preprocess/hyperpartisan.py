"""Make a data folder from Hyperpartisan news (Kiesel et al. 2019): the two XML files as they are released.

One file has the articles, the other the ground truth. A document is the article's text, cleaned as Longformer's authors
clean it. A file says which articles are in which split, or else shares of them become the splits valid and test.
"""

import argparse
import functools
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.classification.scores import HYPERPARTISAN_LABELS, read_ground_truth
from fairseq_poolingformer.text.json_lines import BadLine
from fairseq_poolingformer.text.xml_elements import read_elements

from .news_text import clean
from .pipeline import command, labelled, named_splits, task_corpus
from .pipeline.labelled import LabelledDocument
from .pipeline.records import InputError, Record, Reject, describe_file, open_compressed

logger = logging.getLogger("preprocess")

TEXTS = ("body", "title_and_body")


def read_articles(path: Path, labels: Mapping[str, str]) -> Iterator[Record]:
    """Read every article as a record: JSON with its id, its label if there is one, its title and its text in parts.

    Raises:
        InputError: the file is not XML, ends too early, or has no articles.
    """
    position, found = 0, False
    with open_compressed(path) as (content, disk):
        try:
            for article in read_elements(content, str(path), "article"):
                name = article.attributes.get("id", "")
                fields = {"id": name, "label": labels.get(name), "parts": article.parts, "problem": article.problem}
                fields["title"] = article.attributes.get("title", "")
                yield Record(str(path), article.line, json.dumps(fields).encode(), disk.tell() - position)
                position, found = disk.tell(), True
        except ValueError as error:
            raise InputError(str(error)) from error
    if not found:
        raise InputError(f"{path}: no articles in it; fetch it again")


def id_of(record: Record) -> str:
    """Return the id of a record's article."""
    return json.loads(record.data)["id"]


def parse(record: Record, text: str) -> LabelledDocument | Reject:
    """Make an example of an article; ``text`` is one of :data:`TEXTS`."""
    return task_corpus.parse_object(record, functools.partial(_example, text=text))


def _example(fields: dict, text: str) -> LabelledDocument:
    if fields["problem"]:
        raise BadLine(fields["problem"])
    name = task_corpus.checked_id(fields["id"])
    if not fields["label"]:
        raise BadLine(f"no ground truth: article {name!r}")
    if text == "body":
        found = clean("".join(fields["parts"]))
    else:
        paragraphs = (" ".join(part.split()) for part in (fields["title"], *fields["parts"]))
        found = "\n".join(filter(None, paragraphs))
    if not found:
        raise BadLine(f"empty document: article {name!r}")
    return LabelledDocument(name, (found,), fields["label"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = labelled.make_parser("hyperpartisan", __doc__.split("\n")[0])
    parser.add_argument("--articles", metavar="FILE", type=Path, required=True, help="articles-….xml, plain or .gz")
    parser.add_argument("--truth", metavar="FILE", type=Path, required=True, help="ground-truth-….xml")
    parser.add_argument(
        "--text",
        choices=TEXTS,
        default=TEXTS[0],
        help="body: the article's text, cleaned as Longformer's authors do; title_and_body: the title and the "
        "paragraphs as they are (default: %(default)s)",
    )
    parser.add_argument(
        "--splits",
        metavar="FILE",
        type=Path,
        help="which articles are in which split, in place of shares: JSON of lists of ids under train, dev and test, "
        "such as Longformer's scripts/hp-splits.json, or lines of an id and a split",
    )
    labelled.add_shares(parser, valid=0.1, test=0.1)

    def make_corpus(args: argparse.Namespace):
        for path in (args.articles, args.truth, *filter(None, [args.splits])):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        labels = read_ground_truth(args.truth)
        read = functools.partial(read_articles, args.articles, labels)
        inputs = [describe_file(args.articles), describe_file(args.truth)]
        size, notes = args.articles.stat().st_size, []
        if args.splits is None:
            splits, settings = labelled.shares(args, read, size, lambda record: id_of(record).encode())
        else:
            named = named_splits.read(args.splits, labels)
            splits, settings = named.divide(read, size, id_of), {}
            inputs.append(describe_file(args.splits))
            notes = named.notes()
        settings["text"] = args.text
        return labelled.make_corpus(
            "hyperpartisan",
            splits,
            functools.partial(parse, text=args.text),
            HYPERPARTISAN_LABELS,
            settings,
            inputs,
            task_corpus.with_lines(task_corpus.length_table, notes),
        )

    return command.main(parser, make_corpus, argv)


if __name__ == "__main__":
    sys.exit(main())

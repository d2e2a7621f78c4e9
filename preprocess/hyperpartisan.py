"""Make a data folder from Hyperpartisan news (Kiesel et al. 2019): the two XML files as they are released.

One file has the articles, the other the ground truth. A document is the article's text, cleaned as Longformer's authors
clean it. A file says which articles are in which split, or else shares of them become the splits valid and test.
"""

import argparse
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.tasks.classification import released
from fairseq_poolingformer.tasks.classification.released import HYPERPARTISAN_LABELS, read_ground_truth
from fairseq_poolingformer.text.json_values import BadLine

from .labelled_text import LabelledDocument, corpus_of, make_shared_parser
from .pipeline import command, splits, task_corpus
from .pipeline.records import Record, describe_file, read_files
from .pipeline.report import task_table, with_lines
from .pipeline.run import Corpus

_EITHER_OR = re.compile(r"(?<![a-zA-Z])[a-zA-Z]+/[a-zA-Z]+")  # begins with a run of letters, so that each is read once
_LINKS = tuple(re.compile(rf"{start}\S+") for start in ("http", "www", "href"))
_MARKS = re.compile(r"[!?.]+([!?.])")
_STRETCH = re.compile(r"\S+")
_WORD_CHARACTER = re.compile(r"\w")
_RUN = re.compile(r"(.)\1{2,}", re.DOTALL)


def read_articles(path: Path, labels: Mapping[str, str]) -> Iterator[Record]:
    """Read every article as a record: JSON with its id, its label if there is one, and its text in parts."""
    return read_files([path], functools.partial(_articles, labels=labels), "article")


def _articles(content: BinaryIO, file: str, labels: Mapping[str, str]) -> Iterator[tuple[int, bytes]]:
    name = None
    for attributes, parts in released.read_articles(content, file):
        name = attributes.get("id", "")
        yield 1, json.dumps({"id": name, "label": labels.get(name), "parts": parts}).encode()
    if name is None:
        raise ValueError(f"{file}: no articles in it; fetch it again")


def id_of(record: Record) -> str:
    """Return the id of a record's article."""
    return json.loads(record.data)["id"]


def clean(text: str) -> str:
    """The text of an article on one line as Longformer's authors read it."""
    # blanks for slashes between words and &#160;; no links; the last of several marks !?., one of three or more alike
    text = _EITHER_OR.sub(" ", text).replace("\n", " ").replace("&#160;", "")
    for link in _LINKS:
        text = link.sub("", text)
    text = re.sub(r"\s+", " ", text)
    text = _MARKS.sub(r"\1", text)
    return _STRETCH.sub(_shorten, text).strip()


def _shorten(stretch: re.Match[str]) -> str:
    """Shorten the runs of a stretch without blanks, from its first word on, that end where a word ends or begins."""
    text = stretch[0]
    word = _WORD_CHARACTER.search(text)
    if word is None:
        return text

    def one(run: re.Match[str]) -> str:
        following = text[run.end() : run.end() + 1]
        is_edge = _is_word(run[1]) != _is_word(following)
        return run[1] if is_edge and run.start() >= word.start() else run[0]

    return _RUN.sub(one, text)


def _is_word(character: str) -> bool:
    return _WORD_CHARACTER.match(character) is not None


@task_corpus.from_object
def parse(fields: dict) -> LabelledDocument:
    """Make an example of an article."""
    name = task_corpus.id_of(fields, "id")
    if not fields["label"]:
        raise BadLine(f"no ground truth: article {name!r}")
    text = clean("".join(fields["parts"]))
    if not text:
        raise BadLine(f"empty document: article {name!r}")
    return LabelledDocument(name, (text,), fields["label"])


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = make_shared_parser("hyperpartisan", __doc__)
    parser.add_argument("--articles", metavar="FILE", type=Path, required=True, help="articles-….xml, plain or .gz")
    parser.add_argument("--truth", metavar="FILE", type=Path, required=True, help="ground-truth-….xml")
    text = "which articles are in which split, in place of shares: JSON of lists of ids under train, dev and test, "
    text += "such as Longformer's scripts/hp-splits.json, or lines of an id and a split"
    parser.add_argument("--splits", metavar="FILE", type=Path, help=text)
    splits.add_shares(parser, valid=0.1, test=0.1)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    paths = [args.articles, args.truth, *filter(None, [args.splits])]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
    labels = read_ground_truth(args.truth)
    whole = splits.SplitRecords(functools.partial(read_articles, args.articles, labels), args.articles.stat().st_size)
    table = task_table
    if args.splits is None:
        divided, settings = splits.by_shares(args, whole, lambda record: "".join(json.loads(record.data)["parts"]))
    else:
        named = splits.read_splits(args.splits, labels)
        divided, settings = named.divide(whole, id_of), {}
        table = with_lines(task_table, named.notes())
    return corpus_of(
        HYPERPARTISAN_LABELS,
        name="hyperpartisan",
        splits=divided,
        parse=parse,
        settings=settings,
        inputs=[describe_file(path) for path in paths],
        table=table,
    )


main = command.main_of(__name__, make_parser, make_corpus)

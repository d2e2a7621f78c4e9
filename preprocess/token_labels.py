"""Make a data folder from documents with a label for each word, in CoNLL-2003's columns or in any other format.

A record has ``tokens``, ``labels`` and perhaps ``id`` and ``sentences``, how many tokens each sentence has. In columns
a document begins at -DOCSTART-; without it every sentence is one.
"""

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.token_labels.data import TokenLabelSplit
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_values import BadLine, type_name
from fairseq_poolingformer.text.labels import id_of
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .labelled_text import TrainLabels, name_of, renamed
from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, encode_words, one_line
from .pipeline.records import Example, Record, Reject
from .pipeline.report import task_table
from .pipeline.run import Corpus
from .records import keys, options

KIND = "token_labels"


@dataclass(frozen=True)
class Keys:
    """Where in a record its parts are: key paths."""

    tokens: str = "tokens"
    labels: str = "labels"
    id: str = "id"


USUAL = Keys()


@dataclass(frozen=True)
class LabelledWords(Example):
    """A document: ``texts`` are its words; no labels where they are not known."""

    label: tuple[str, ...]
    sentences: tuple[int, ...]


def parse(
    record: Record, annotated: bool = True, where: Keys = USUAL, names: Sequence[str] = ()
) -> LabelledWords | Reject:
    """Make an example of a record; ``names`` are those of labels that are whole numbers."""

    @task_corpus.from_object
    def make(fields: dict) -> LabelledWords:
        words = _list(fields, where.tokens, "tokens", "--tokens-key")
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            raise BadLine(f"wrong type: {where.tokens} must hold words, each a string that is not blank")
        found = _list(fields, where.labels, "labels", "--labels-key") if annotated else []
        labels = [_label(label, names) for label in found]
        if annotated and len(labels) != len(words):
            raise BadLine(f"malformed: {len(words)} tokens and {len(labels)} labels")
        sentences = fields.get("sentences", [len(words)])
        if not isinstance(sentences, list) or not all(type(size) is int and size > 0 for size in sentences):
            raise BadLine("wrong type: sentences must hold whole numbers, 1 or more")
        if sum(sentences) != len(words):
            raise BadLine(f"malformed: {len(words)} tokens, and sentences of {sum(sentences)}")
        name = id_of(renamed(fields, "id", where.id), record.file, record.line)
        return LabelledWords(name, tuple(map(replace_lone_surrogates, words)), tuple(labels), tuple(sentences))

    return make(record)


def _list(fields: dict, key: str, what: str, option: str) -> list:
    _, found = keys.first(fields, [key], what, option)
    if not isinstance(found, list):
        raise BadLine(f"wrong type: {key} is {type_name(found)}, not a list")
    return found


def _label(label: object, names: Sequence[str]) -> str:
    if type(label) is int:
        return names[label] if 0 <= label < len(names) and str(label) not in names else str(label)
    if isinstance(label, str) and len(label.split()) == 1:
        return label.strip()
    raise BadLine(f"wrong type: a label is {json.dumps(label)[:60]}, not a string without blanks or a whole number")


def encode(tokenizer: Tokenizer, example: LabelledWords, labels: Sequence[str]) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.token_labels.data.TokenLabelSplit`."""
    unknown = next((label for label in example.label if label not in labels), None)
    if unknown is not None:
        return Reject(f"unknown label: {unknown!r} is not one of {', '.join(labels)}")
    arrays = encode_words(tokenizer, example.texts) | {
        "sentence": np.array(example.sentences),
        "label": np.array([labels.index(label) for label in example.label], np.int64),
    }
    return Encoded(arrays, {"id": one_line(example.id), "words": json.dumps(example.texts)})


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = options.make_parser("token_labels", __doc__, f"CoNLL's columns, or {options.FORMATS}")
    group = parser.add_argument_group("what a record has", options.KEYS)
    for part in ("tokens", "labels", "id"):
        text = f"where its {part} is (default: %(default)s)" if part == "id" else f"where the list of its {part} is"
        group.add_argument(f"--{part}-key", metavar="KEY", default=getattr(USUAL, part), help=text)
    text = "the labels in the order of their numbers, which a record may have instead (default: train's, sorted)"
    group.add_argument("--labels", metavar="LABEL", nargs="+", help=text)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    where = Keys(args.tokens_key, args.labels_key, args.id_key)
    data = options.find(args, functools.partial(name_of, where=where))
    names = tuple(args.labels or ())
    read = functools.partial(parse, where=where, names=names)
    labels = list(names) or TrainLabels.find(data.splits, read).names()
    return options.corpus_of(
        data,
        read,
        task_table,
        KIND,
        name=KIND,
        settings={"keys": list(vars(where).values()), **data.settings},
        layout=TokenLabelSplit.layout,
        encode=functools.partial(encode, labels=tuple(labels)),
        entries={"labels": labels},
    )


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

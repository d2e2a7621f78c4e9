"""Make a data folder from lines of JSON with ``id``, ``sentences`` and, but for ``--test``, the number ``key``."""

from dataclasses import dataclass

import numpy as np
from fairseq_poolingformer.preprocess.pipeline import task_corpus
from fairseq_poolingformer.preprocess.pipeline.encode import Encoded
from fairseq_poolingformer.preprocess.pipeline.records import Example, read_lines

from fairseq_poolingformer.text.data_folder import Layout

LAYOUT = Layout("poolingformer-preprocess key_lines", ids=("document",), numbers=("size", "key"))


@dataclass(frozen=True)
class KeyExample(Example):
    key: tuple[int, ...]


def parse(record, annotated):
    def make(fields):
        return KeyExample(str(fields["id"]), tuple(fields["sentences"]), (fields["key"],) if annotated else ())

    return task_corpus.parse_object(record, make)


def encode(tokenizer, example):
    sentences = [tokenizer.encode(text) for text in example.texts]
    arrays = {"document": np.concatenate(sentences), "size": np.array(list(map(len, sentences)))}
    return Encoded(arrays | {"key": np.array(example.key, np.int64)}, {"id": example.id})


def main(argv=None):
    parser = task_corpus.make_parser("key_lines", __doc__, "lines of JSON")

    def corpus(args):
        return task_corpus.make_corpus(args, "key_lines", "key_sentence", LAYOUT, read_lines, parse, encode)

    return task_corpus.main(parser, corpus, argv)

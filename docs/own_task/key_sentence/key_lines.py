"""Make a data folder from lines of JSON with ``id``, ``sentences`` and, but for ``--test``, the number ``key``."""

import functools
from dataclasses import dataclass

import numpy as np
from fairseq_poolingformer.preprocess.pipeline import command, task_corpus
from fairseq_poolingformer.preprocess.pipeline.encode import Encoded
from fairseq_poolingformer.preprocess.pipeline.records import Example, read_lines

from fairseq_poolingformer.text.data_folder import Layout

LAYOUT = Layout("poolingformer preprocess key_lines", ids=("document",), numbers=("size", "key"))


@dataclass(frozen=True)
class KeyExample(Example):
    key: tuple[int, ...]


@task_corpus.from_object
def parse(fields, annotated):
    return KeyExample(str(fields["id"]), tuple(fields["sentences"]), (fields["key"],) if annotated else ())


def encode(tokenizer, example):
    sentences = [tokenizer.encode(text) for text in example.texts]
    arrays = {"document": np.concatenate(sentences), "size": np.array(list(map(len, sentences)))}
    return Encoded(arrays | {"key": np.array(example.key, np.int64)}, {"id": example.id})


make_parser = functools.partial(task_corpus.make_parser, "key_lines", __doc__, "lines of JSON")
_FIELDS = {"name": "key_lines", "kind": "key_sentence", "layout": LAYOUT, "encode": encode}
make_corpus = functools.partial(task_corpus.make_corpus, read=read_lines, parse=parse, **_FIELDS)
main = functools.partial(command.main, make_parser, make_corpus)

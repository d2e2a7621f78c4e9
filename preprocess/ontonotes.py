"""Make a data folder for coreference from OntoNotes' *_gold_conll, or other files in the column format of CoNLL-2012.

A part of a document is an example. Text outside of documents, and documents with a bad line, are named and left out.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fairseq_poolingformer.tasks.coreference.data import (
    ConllDocument,
    CoreferenceSplit,
    RawDocument,
    parse_document,
    split_documents,
)
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, encode_words, one_line
from .pipeline.records import Example, Record, Reject, read_files

# how the treebanks write these marks; a pretrained model knows them as they are
PLAIN_WORDS = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
    **{"/.": ".", "/?": "?", "/-": "-"},
}
HIDDEN_WORD = "[WORD]"  # the release's skeleton files hide the words
MAX_WIDTH = 30  # --max-span-width of the task, where it is not set
WIDE = f"mention of more than {MAX_WIDTH} words, which the default --max-span-width leaves out"
TWO_SENTENCES = "mention in two sentences, which is never found"
CROSSING = "mention that crosses another one, so that one of the two is found at most"
TWO_ENTITIES = "mention of two entities, which training takes for one"


@dataclass(frozen=True)
class CoreferenceExample(Example):
    """A document; ``texts`` are its words as the tokenizer reads them."""

    document: ConllDocument


def read_documents(paths: Sequence[Path]) -> Iterator[Record]:
    """Read the documents of plain or compressed files."""
    return read_files(paths, _documents)


def _documents(content: BinaryIO, file: str) -> Iterator[tuple[int, bytes]]:
    with TextIOWrapper(content, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
        for raw in split_documents(lines):
            yield raw.first_line, "\n".join(raw.lines).encode("utf-8", "surrogateescape")


def parse(record: Record, annotated: bool) -> CoreferenceExample | Reject:
    """Read a document; ``annotated`` says whether to read its mentions."""
    try:
        raw = RawDocument(record.data.decode("utf-8").split("\n"), record.line)
        document = parse_document(raw, annotated=annotated)
    except UnicodeDecodeError as error:
        line = record.line + record.data[: error.start].count(b"\n")
        return Reject(f"not UTF-8: line {line}, {error.reason}")
    except BadLine as error:
        return Reject(str(error))
    if HIDDEN_WORD in document.words:
        return Reject(f"words are hidden: {HIDDEN_WORD} in place of words; run the release's skeleton2conll.sh first")
    words = tuple(PLAIN_WORDS.get(word, word) for word in document.words)
    return CoreferenceExample(document.name, words, document)


def encode(tokenizer: Tokenizer, example: CoreferenceExample) -> Encoded:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.coreference.data.CoreferenceSplit`."""
    document = example.document
    speakers: dict[str, int] = {}
    rows = [(*mention, entity) for entity, cluster in enumerate(document.clusters, 1) for mention in cluster]
    arrays = encode_words(tokenizer, example.texts) | {
        "sentence": np.array(document.sentences),
        "speaker": np.array([speakers.setdefault(name, len(speakers)) for name in document.speakers]),
        "mention": np.array(rows, np.int64).reshape(-1),
    }
    texts = {"id": one_line(example.id), "words": " ".join(document.words), "notes": "; ".join(notes(document))}
    return Encoded(arrays, texts)


def notes(document: ConllDocument) -> list[str]:
    """Name each mention that training cannot learn from as it is."""
    sentence = np.repeat(np.arange(len(document.sentences)), document.sentences)
    mentions = [mention for cluster in document.clusters for mention in cluster]
    lines = []
    for number, (start, end) in enumerate(mentions):
        others = mentions[:number] + mentions[number + 1 :]
        kinds = {
            WIDE: end - start > MAX_WIDTH,
            TWO_SENTENCES: sentence[start] != sentence[end - 1],
            CROSSING: any(start < a < end < b or a < start < b < end for a, b in others),
            TWO_ENTITIES: (start, end) in mentions[:number],
        }
        lines += [kind for kind, is_so in kinds.items() if is_so]
    return lines


_FIELDS = {"name": "ontonotes", "kind": "coreference", "layout": CoreferenceSplit.layout, "encode": encode}
make_parser = functools.partial(task_corpus.make_parser, "ontonotes", __doc__, "*_gold_conll, plain, .gz or .bz2")
make_corpus = functools.partial(task_corpus.make_corpus, read=read_documents, parse=parse, **_FIELDS)
main = command.main_of(__name__, make_parser, make_corpus)

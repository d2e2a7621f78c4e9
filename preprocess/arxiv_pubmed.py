"""arXiv, PubMed, BigPatent and any other summarization corpus, to a data folder.

A record, in a file of any format that :mod:`preprocess.records` reads, has one of two forms:

- the arXiv/PubMed release (Cohan et al., 2018): ``article_id, article_text, abstract_text, section_names, sections``,
  where texts are lists of sentences and those of the abstract are marked ``<S> … </S>``;
- ``{"article" | "document" | "text" | "description": …, "abstract" | "summary": …}`` with a string, or a list of
  strings and sections, each (:mod:`preprocess.records.keys`). BigPatent (Sharma et al., 2019) has ``description`` and
  ``abstract``. ``--article-key`` and ``--summary-key`` name other keys or paths.

Sentences are joined by a space, sections and other strings by a newline. Nothing is put before the text: GPT-2 BPE sees
no leading space, as in fairseq's own recipes for BART.
"""

import argparse
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.summarization import PAIRS, QUERY
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.json_values import BadLine, read_object, type_name
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command
from .pipeline.encode import Encoded, encode_texts
from .pipeline.records import Example, Record, Reject
from .pipeline.report import length_table
from .pipeline.run import Corpus
from .records import keys, options

ARTICLE_KEYS = ("article_text", "article", "document", "text", "description")
SUMMARY_KEYS = ("abstract_text", "abstract", "summary")
ID_KEYS = ("article_id", "id", "publication_number")
_MARKS = re.compile(r"</?S>")


def parse(
    record: Record,
    article_keys: Sequence[str] = ARTICLE_KEYS,
    summary_keys: Sequence[str] = SUMMARY_KEYS,
    id_keys: Sequence[str] = ID_KEYS,
    query_key: str = "",
    annotated: bool = True,
) -> Example | Reject:
    """Make an example of one line."""
    try:
        fields = read_object(record.data)
        article = _article(fields, article_keys)
        query = _query(fields, query_key)
        is_there = annotated or any(keys.under(fields, key) is not None for key in summary_keys)
        summary = _summary(fields, summary_keys) if is_there else ""
        name = _name(fields, id_keys, record)
    except BadLine as error:
        return Reject(str(error))
    if not isinstance(name, str | int):
        return Reject(f"wrong type: the id is {type_name(name)}, not a string")
    if query:
        return QueriedDocument(str(name), (query + article, summary), query)
    return Example(str(name), (article, summary))


def parse_article(record: Record, article_keys: Sequence[str]) -> Example | Reject:
    """Make an example of the article alone: the questions and summaries of one are in one split."""
    try:
        return Example("", (_article(read_object(record.data), article_keys),))
    except BadLine as error:
        return Reject(str(error))


@dataclass(frozen=True)
class QueriedDocument(Example):
    """A document whose text begins with a question."""

    query: str


def encode(tokenizer: Tokenizer, example: Example) -> Encoded | Reject:
    """Encode a document and its summary, which may be empty, and count the tokens of its question."""
    article, summary = example.texts
    encoded = encode_texts(tokenizer, replace(example, texts=(article, summary or article)))
    if isinstance(encoded, Reject):
        return encoded
    arrays, texts = dict(encoded.arrays), dict(encoded.texts)
    if not summary:
        arrays[PAIRS.ids[1]], texts["summary"] = np.array([EOS]), ""
    if isinstance(example, QueriedDocument):
        arrays[QUERY] = np.array([len(tokenizer.encode(example.query.rstrip()))])
    return replace(encoded, arrays=arrays, texts=texts)


def _query(fields: dict, query_key: str) -> str:
    """The question at the start of an article, with the blank line after it; "" where there is no key."""
    if not query_key:
        return ""
    key, query = keys.first(fields, [query_key], "question", "--query-key")
    if not isinstance(query, str):
        raise BadLine(f"wrong type: {key} is {type_name(query)}, not a string")
    if not query.strip():
        raise BadLine(f"empty question: {key}")
    return f"{query.strip()}\n\n"


def name_of(record: Record, id_keys: Sequence[str] = ID_KEYS) -> str:
    """The id of a record, by which a file names splits."""
    try:
        fields = read_object(record.data or b"")
    except BadLine:
        fields = {}
    return str(_name(fields, id_keys, record))


def _name(fields: dict, id_keys: Sequence[str], record: Record) -> object:
    ids = (value for key in id_keys if not _is_blank(value := keys.under(fields, key)))
    return next(ids, f"{Path(record.file).name}:{record.line}")


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _article(fields: dict, article_keys: Sequence[str]) -> str:
    key, value = keys.first(fields, article_keys, "article", "--article-key")
    texts = keys.texts_of(key, value)
    if isinstance(value, str):
        text = value.strip()
    elif key == "article_text":
        text = _join_sections(fields, texts, _sentences(texts))
    else:
        text = "\n".join(_sentences(texts))
    if not text:
        raise BadLine(f"empty article: {key}")
    return text


def _summary(fields: dict, summary_keys: Sequence[str]) -> str:
    key, value = keys.first(fields, summary_keys, "summary", "--summary-key")
    sentences = _sentences([_MARKS.sub(" ", text) for text in keys.texts_of(key, value)])
    if not sentences:
        raise BadLine(f"empty summary: {key}")
    return " ".join(sentences)


def _join_sections(fields: dict, raw: list[str], article: list[str]) -> str:
    """Join sentences, broken where ``sections`` has them; ``article`` is ``raw`` after :func:`_sentences`."""
    sections = fields.get("sections")
    if not (isinstance(sections, list) and all(isinstance(section, list) for section in sections)):
        return " ".join(article)
    if len(raw) == len(article) and list(itertools.chain.from_iterable(sections)) == raw:  # no need to do it again
        sentences = iter(article)
        cut = [list(itertools.islice(sentences, len(section))) for section in sections]
    else:
        cut = [_sentences(keys.texts_of("sections", section)) for section in sections]
    if [sentence for section in cut for sentence in section] != article:
        return " ".join(article)
    return "\n".join(" ".join(section) for section in cut if section)


def _sentences(texts: Sequence[str]) -> list[str]:
    """The sentences with their whitespace made single spaces, empty ones left out."""
    return [sentence for text in texts if (sentence := " ".join(text.split()))]


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Make the corpus that the command line names."""
    choices = {"article_keys": args.article_key, "summary_keys": args.summary_key, "id_keys": args.id_key}
    chosen = {name: value for name, value in choices.items() if value is not None}
    chosen |= {"query_key": args.query_key} if args.query_key else {}
    name = functools.partial(name_of, id_keys=args.id_key or ID_KEYS)
    data = options.find(args, name, functools.partial(parse_article, article_keys=args.article_key or ARTICLE_KEYS))
    if "train" not in data.splits:
        raise ValueError("no training data: give --train" + (f"; no name in {args.data} says it" if args.data else ""))
    settings = {**chosen, "max_line_bytes": args.max_line_bytes, **data.settings}
    return Corpus(
        name="arxiv_pubmed",
        splits=data.splits,
        parse=functools.partial(parse, **chosen),
        settings=settings,
        inputs=data.inputs,
        layout=replace(PAIRS, numbers=(QUERY,)) if args.query_key else PAIRS,
        encode=encode,
        table=options.with_notes(length_table, data),
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("arxiv_pubmed", __doc__)
    group = parser.add_argument_group("input", options.FORMATS)
    options.add_data(group, "--input-folder")
    for split in ("train", "valid", "test"):
        group.add_argument(f"--{split}", metavar="FILE", nargs="+", help=f"files or globs of the {split} split")
    group = parser.add_argument_group("what a record has", options.KEYS)
    for what, usual in (("article", ARTICLE_KEYS), ("summary", SUMMARY_KEYS), ("id", ID_KEYS)):
        text = f"where its {what} is: the first of these keys that is there (default: {' '.join(usual)})"
        group.add_argument(f"--{what}-key", metavar="KEY", nargs="+", help=text)
    text = "where a question is, which is put before the article with a blank line"
    group.add_argument("--query-key", metavar="KEY", help=text)
    options.add_options(parser)
    return parser


main = command.main_of(__name__, make_parser, make_corpus)

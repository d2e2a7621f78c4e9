"""arXiv, PubMed, BigPatent and any other summarization corpus, to a data folder.

A record, in a file of any format that :mod:`preprocess.records` reads, has one of two forms:

- the arXiv/PubMed release (Cohan et al., 2018): ``article_id, article_text, abstract_text, section_names, sections``,
  where texts are lists of sentences and those of the abstract are marked ``<S> … </S>``;
- ``{"article" | "document" | "text" | "description": …, "abstract" | "summary": …}`` with a string, or a list of
  strings, each. BigPatent (Sharma et al., 2019) has ``description`` and ``abstract``. ``--article-key`` and
  ``--summary-key`` name other keys, which may be paths (:mod:`preprocess.records.keys`).

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
from .pipeline.records import Example, InputError, Record, Reject
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
    article_separator: str = "\n",
    summary_separator: str = " ",
    query_key: str = "",
    annotated: bool = True,
) -> Example | Reject:
    """Make an example of one line."""
    try:
        fields = read_object(record.data)
        article = _article(fields, article_keys, article_separator)
        query = query_of(fields, query_key)
        is_there = annotated or any(keys.under(fields, key) is not None for key in summary_keys)
        summary = summary_of(fields, summary_keys, summary_separator) if is_there else ""
        name = _name(fields, id_keys, record)
    except BadLine as error:
        return Reject(str(error))
    except RecursionError:
        return Reject("nested too deeply")
    if not isinstance(name, str | int):
        return Reject(f"wrong type: the id is {type_name(name)}, not a string")
    if query:
        return QueriedDocument(str(name), (query + article, summary), query)
    return Example(str(name), (article, summary))


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


def query_of(fields: dict, query_key: str) -> str:
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
    """The id of a record, by which splits are made."""
    fields = keys.parsed_object(record.data)
    return str(_name(fields or {}, id_keys, record))


def _name(fields: dict, id_keys: Sequence[str], record: Record) -> object:
    ids = (value for key in id_keys if not _is_blank(value := keys.under(fields, key)))
    found = next(ids, f"{Path(record.file).name}:{record.line}")
    return "-".join(map(str, found)) if isinstance(found, list) and "+" in "".join(id_keys) else found


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _article(fields: dict, article_keys: Sequence[str], separator: str) -> str:
    key, value = keys.first(fields, article_keys, "article", "--article-key")
    if isinstance(value, str):
        text = value.strip()
    elif key == "article_text":
        text = _join_sections(fields, value, _sentences(key, value))
    else:
        text = separator.join(_sentences(key, value))
    if not text:
        raise BadLine(f"empty article: {key}")
    return text


def summary_of(fields: dict, summary_keys: Sequence[str], separator: str = " ") -> str:
    """The summary under the first of some key paths."""
    key, value = keys.first(fields, summary_keys, "summary", "--summary-key")
    sentences = _sentences(key, [value] if isinstance(value, str) else value, marks=True)
    if not sentences:
        raise BadLine(f"empty summary: {key}")
    return separator.join(sentences)


def _join_sections(fields: dict, raw: list[str], article: list[str]) -> str:
    """Join sentences, broken where ``sections`` has them; ``article`` is ``raw`` after :func:`_sentences`."""
    sections = fields.get("sections")
    if not (isinstance(sections, list) and all(isinstance(section, list) for section in sections)):
        return " ".join(article)
    if len(raw) == len(article) and list(itertools.chain.from_iterable(sections)) == raw:  # no need to do it again
        sentences = iter(article)
        cut = [list(itertools.islice(sentences, len(section))) for section in sections]
    else:
        cut = [_sentences("sections", section) for section in sections]
    if [sentence for section in cut for sentence in section] != article:
        return " ".join(article)
    return "\n".join(" ".join(section) for section in cut if section)


def _sentences(key: str, value: object, marks: bool = False) -> list[str]:
    """The sentences of a list with their whitespace made single spaces, empty ones left out."""
    if not isinstance(value, list):
        raise BadLine(f"wrong type: {key} is {type_name(value)}, not a string or a list of strings")
    sentences = []
    for position, sentence in enumerate(value):
        if not isinstance(sentence, str):
            raise BadLine(f"wrong type: {key}[{position}] is {type_name(sentence)}, not a string")
        sentences.append(" ".join((_MARKS.sub(" ", sentence) if marks else sentence).split()))
    return [sentence for sentence in sentences if sentence]


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Make the corpus that the command line names."""
    found = {"article_keys": args.article_key, "summary_keys": args.summary_key, "id_keys": args.id_key}
    found |= {"article_separator": args.article_separator, "summary_separator": args.summary_separator}
    chosen = {name: value for name, value in found.items() if value is not None}
    chosen |= {"query_key": args.query_key} if args.query_key else {}
    data = options.find(args, functools.partial(name_of, id_keys=args.id_key or ID_KEYS))
    if "train" not in data.splits:
        raise InputError("no training data: give --train" + (f"; no name in {args.data} says it" if args.data else ""))
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
    for what, usual in (("article", "a line break"), ("summary", "a space")):
        text = f"between the texts of a list that is the {what} (default: {usual})"
        group.add_argument(f"--{what}-separator", metavar="TEXT", help=text)
    options.add_options(parser)
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

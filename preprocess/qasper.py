"""Make a data folder from QASPER (Dasigi et al. 2021), as it is released: qasper-train-v0.3.json and so on.

A record is a paper with its questions under ``qas``. The captions of figures and tables are a last section.
"""

import argparse
import functools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fairseq_poolingformer.tasks.qasper.examples import AnswerType, QasperSplit
from fairseq_poolingformer.tasks.qasper.scores import FLOAT, Reference, references_of
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH, MAX_QUESTION_LENGTH
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_lines import BadLine
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from . import hotpotqa
from .hotpotqa import HotpotqaExample, Paragraph, clean, find_places
from .labelled_text import name_of
from .pipeline import command, task_corpus
from .pipeline.encode import Encoded
from .pipeline.records import Record, Reject
from .pipeline.report import answer_table
from .pipeline.run import Corpus
from .records import keys, options

NO_EVIDENCE = "evidence that is not in the paper"
NO_PLACE = "answer that is not in its evidence"
_TYPES = {"extractive": AnswerType.SPAN, "abstractive": AnswerType.SPAN, "none": AnswerType.NONE}

Section = tuple[str, list[str]]  # a title, and paragraphs as they are in the release


@dataclass(frozen=True)
class QasperExample(HotpotqaExample):
    """A question; ``originals`` are the paragraphs as they are in the release."""

    originals: tuple[str, ...]


def questions(records: Iterator[Record]) -> Iterator[Record]:
    """Make a record of each question of a paper, with the paper around it; what is not a paper stays as it is."""
    for record in records:
        fields = keys.parsed_object(record.data)
        if fields is None or not isinstance(fields.get("qas"), list):
            yield record
            continue
        paper = {key: value for key, value in fields.items() if key != "qas"}
        for number, question in enumerate(fields["qas"]):
            name = f"{record.file}, question {number}"
            data = json.dumps({"paper": paper, **question} if isinstance(question, dict) else question).encode()
            yield replace(record, file=name, data=data, progress=record.progress if number == 0 else 0)


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> QasperExample:
    """Make an example of a question; ``annotated`` says whether its answers are read."""
    name = task_corpus.id_of(fields, "question_id")
    question = replace_lone_surrogates(task_corpus.question_of(fields, "question"))
    sections = [section for section in _sections(json_values.as_object(fields.get("paper"), "the paper")) if section[1]]
    if not sections:
        raise BadLine("empty document: the paper has no paragraphs")
    notes: list[str] = []
    answer_type, right = _agreed(references_of(fields)) if annotated else (None, [])
    evidence = {clean(text) for one in right for text in one.evidence}
    paragraphs = [_marked(section, evidence) for section in sections]
    notes += [NO_EVIDENCE] * len(evidence - {text for paragraph in paragraphs for text in paragraph.sentences})
    places: set[tuple[int, tuple[int, int]]] = set()
    if answer_type == AnswerType.SPAN:
        for text in {clean(text) for one in right for text in one.texts}:
            found = find_places(text, paragraphs)
            notes += [] if found else [NO_PLACE]
            places.update(found)
    texts = (question, *(text for paragraph in paragraphs for text in paragraph.texts))
    originals = tuple(text for _, section in sections for text in section)
    return QasperExample(name, texts, tuple(paragraphs), answer_type, tuple(sorted(places)), tuple(notes), originals)


def _sections(paper: dict) -> Iterator[Section]:
    """The title with the abstract, the sections, and the captions as evidence has them."""
    yield _text(paper, "title"), [text for text in [_text(paper, "abstract")] if text.strip()]
    for value in json_values.list_of(paper, "full_text"):
        section = json_values.as_object(value, "a section")
        texts = json_values.texts_of(section, "paragraphs")
        yield _text(section, "section_name"), [text for text in texts if text.strip()]
    figures = paper.get("figures_and_tables") or []
    captions = [_text(json_values.as_object(figure, "a figure"), "caption") for figure in figures]
    yield "", [f"{FLOAT}: {caption}" for caption in captions if caption.strip()]


def _text(record: dict, key: str) -> str:
    return json_values.text_of(record, key) if record.get(key) is not None else ""


def _agreed(references: list[Reference]) -> tuple[AnswerType, list[Reference]]:
    """The kind that most annotators chose, the first of several, and the answers of that kind."""
    types = [_TYPES.get(one.kind) for one in references]
    types = [
        AnswerType[one.answer.upper()] if kind is None else kind for kind, one in zip(types, references, strict=True)
    ]
    ((most, _),) = Counter(types).most_common(1)
    return most, [one for one, kind in zip(references, types, strict=True) if kind == most]


def _marked(section: Section, evidence: set[str]) -> Paragraph:
    title, texts = section[0], tuple(map(clean, section[1]))
    supporting = frozenset(number for number, text in enumerate(texts) if text in evidence)
    return Paragraph(title, texts, supporting, bool(supporting))


def encode(tokenizer: Tokenizer, example: QasperExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.qasper.examples.QasperSplit`."""
    found = hotpotqa.encode(tokenizer, example)
    if isinstance(found, Reject):
        return found
    texts = {name: found.texts[name] for name in ("id", "notes")}
    return replace(found, texts=texts | {"paragraphs": json.dumps(example.originals)})


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names.

    Raises:
        InputError: a file is missing.
    """
    data = options.find(args, name_of, questions)
    table = functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH, max_answer=MAX_ANSWER_LENGTH)
    return options.corpus_of(data, parse, table, "qasper", name="qasper", layout=QasperSplit.layout, encode=encode)


make_parser = functools.partial(options.make_parser, "qasper", __doc__, "QASPER's JSON, or papers in any format")
main = functools.partial(command.main, make_parser, make_corpus)

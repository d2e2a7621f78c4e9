"""Section retrieval from Requests for Comments (RFCs): which section of its document a cross-reference names.

A question is a sentence that names one other section of its document, ``as Section 4.2 says``, with ``?`` for the
number; the right section is the one that it names. All numbers of sections that sentences name are ``?`` in the
document, too. Files, cleaning and splits are those of ``rfc``.
"""

import argparse
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.cli.command import natural
from fairseq_poolingformer.tasks.section_retrieval.examples import SectionSplit
from fairseq_poolingformer.tasks.summarization.sentences import split_sentences
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from . import rfc
from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.records import Example, Record, Reject, Skipped
from .pipeline.report import task_table
from .pipeline.run import Corpus
from .plain_text import read_whole
from .rfc_text import Memo, Section, decode, plain_number, read_memo

LEAST_SECTIONS = 5
QUESTION_WORDS = range(8, 61)
_NUMBER = r"(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)+)(?![\w-]|\.\w)"
_LETTER = r"[A-Z](?:\.\d+)*(?![\w-]|\.\w)"
_MORE = r"(?:(?:,? and |,? or |, |-| to ){0})*"
_REFERENCE = re.compile(
    rf"\b(?P<word>[Ss]ections?|SECTIONS?|[Aa]ppendix|APPENDIX|[Aa]ppendices)(?P<blank>\s+)"
    rf"(?P<numbers>{_NUMBER}{_MORE.format(_NUMBER)}|(?<=ix |IX |es ){_LETTER}{_MORE.format(_LETTER)})"
)
_ELSEWHERE_BEFORE = re.compile(r"(\]|\bRFC ?\d+|['’]s)[,:;]?\s*\(?(see )?$")
_ELSEWHERE_AFTER = re.compile(
    r"\s*(,?\s*\[|,?\s*\(?RFC|,? (of|in|from|to) (?!this (document|memo|specification|RFC)\b))"
)


@dataclass(frozen=True)
class Question:
    """A sentence that names a section; ``own`` and ``answer`` are places in the list of sections."""

    text: str
    own: int
    answer: int


@dataclass(frozen=True)
class SectionExample(Example):
    """``texts`` are the question and the sections."""

    headings: tuple[str, ...]
    own: int
    answer: int


def masked(text: str) -> str:
    """The text with ``?`` for the numbers of sections that it names."""
    return _REFERENCE.sub(lambda match: f"{match['word']}{match['blank']}?", text)


def find_questions(sections: Sequence[Section]) -> list[Question]:
    """The sentences that name one section, another one of the same document; in an order that only depends on them."""
    places = {section.number: place for place, section in enumerate(sections) if section.number}
    found = {}
    for own, section in enumerate(sections):
        for paragraph in section.paragraphs:
            for sentence in split_sentences(paragraph) if "ection" in paragraph or "ppendi" in paragraph else ():
                answer = _named(sentence, places)
                words = len(sentence.split())
                if answer not in (None, own) and words in QUESTION_WORDS and sentence.endswith((".", ":")):
                    found.setdefault(masked(sentence), Question(masked(sentence), own, answer))
    return sorted(found.values(), key=lambda question: hashlib.sha256(question.text.encode()).digest())


def _named(sentence: str, places: dict[str, int]) -> int | None:
    """The place of the section that a sentence names, None where it names none, several, or one of another document."""
    references = list(_REFERENCE.finditer(sentence))
    if len(references) != 1:
        return None
    match = references[0]
    if _ELSEWHERE_BEFORE.search(sentence[: match.start()]) or _ELSEWHERE_AFTER.match(sentence[match.end() :]):
        return None
    return places.get(plain_number(match["numbers"]))


def read_repeatedly(paths: Sequence[Path], max_bytes: int, times: int) -> Iterator[Record]:
    """Read every file as several records, whose ``line`` counts them."""
    for record in read_whole(paths, max_bytes):
        yield record
        for number in range(2, times + 1):
            yield Record(record.file, number, record.data)


@functools.lru_cache(maxsize=1)
def _read(data: bytes) -> tuple[Memo, list[Question]]:
    memo = read_memo(decode(data))
    return memo, find_questions(memo.sections)


def parse(record: Record, kin: frozenset[int] = frozenset(), max_words: int = 0) -> SectionExample | Skipped:
    """Make an example of a file: of its n-th question, where the record is the n-th of the file."""
    number = rfc.number_of(record.file)
    if number in kin:
        return Skipped(rfc.KIN)
    memo, questions = _read(record.data)
    sections = memo.sections
    if len(sections) < LEAST_SECTIONS:
        return Skipped(f"fewer than {LEAST_SECTIONS} sections")
    if max_words and len(memo.body.split()) > max_words:
        return Skipped("a body of more than --max-words")
    if record.line > len(questions):
        return Skipped("fewer sentences that name a section than --questions")
    question = questions[record.line - 1]
    return SectionExample(
        f"rfc{number}-{record.line}",
        (question.text, *(masked(section.text) for section in sections)),
        tuple(section.heading for section in sections),
        question.own,
        question.answer,
    )


def encode(tokenizer: Tokenizer, example: SectionExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.section_retrieval.examples.SectionSplit`."""
    question, *sections = (tokenizer.encode(" " + text) for text in example.texts)
    arrays = {"question": question, "section": np.concatenate(sections)}
    numbers = {"size": [len(section) for section in sections], "own": [example.own], "answer": [example.answer]}
    shown = {"id": example.id, "question": example.texts[0], "sections": example.headings}
    shown |= {"own": example.own, "answer": example.answer}
    return Encoded(
        arrays | {name: np.array(values, np.int64) for name, values in numbers.items()},
        {"id": one_line(example.id), "sections": json.dumps(shown)},
    )


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names.

    Raises:
        InputError: the input has no RFC.
    """
    return rfc.describe(
        args,
        functools.partial(parse, max_words=args.max_words),
        functools.partial(read_repeatedly, times=args.questions),
        name="rfc_sections",
        settings={"questions": args.questions, "max_words": args.max_words},
        layout=SectionSplit.layout,
        encode=encode,
        entries={"kind": "section_retrieval", "format": 1},
        table=task_table,
        unique_ids=True,
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = task_corpus.make_encoder_parser("rfc_sections", __doc__)
    rfc.add_input(parser)
    task_corpus.add_lengths(parser)
    command.add_number(parser, "--questions", 2, "take N sentences of a document at most")
    command.add_number(parser, "--max-words", 0, "leave out documents of more words; 0: none", kind=natural)
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

"""Make a data folder from questions about contexts in SQuAD's format (Rajpurkar et al. 2016, 2018), v1 and v2.

The input is the released files, or any records with ``id``, ``question``, ``context`` and ``answers``, as the Hub has
them. The task is ``triviaqa``, whose predictions are the official form, {id: answer}. It answers every question: those
of v2 without an answer train nothing, and count as wrong.
"""

import argparse
import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH, MAX_QUESTION_LENGTH
from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaSplit
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_values import BadLine, type_name

from .pipeline import command, task_corpus
from .pipeline.records import Record
from .pipeline.report import answer_table
from .pipeline.run import Corpus
from .records import keys, options
from .triviaqa import TriviaqaExample, encode

NO_ANSWER = "question without an answer"
MOVED = "answer that is not where its place says"


def questions(records: Iterator[Record]) -> Iterator[Record]:
    """Make a record of each question of articles; a record without ``paragraphs``, such as a row, stays as it is."""
    for record in records:
        fields = keys.parsed_object(record.data)
        if fields is None or "paragraphs" not in fields:
            yield record
            continue
        progress = record.progress
        for found in _of_article(fields):
            name = f"{record.file}, question {found.get('id')}" if isinstance(found, dict) else record.file
            data, problem = (None, found) if isinstance(found, str) else (json.dumps(found).encode(), record.problem)
            yield replace(record, file=name, data=data, problem=problem, progress=progress)
            progress = 0


def _of_article(fields: dict) -> Iterator[dict | str]:
    paragraphs = fields["paragraphs"]
    for number, paragraph in enumerate(paragraphs if isinstance(paragraphs, list) else [paragraphs]):
        if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
            yield f"malformed: paragraph {number} must be an object with a list of questions under 'qas'"
            continue
        for question in paragraph["qas"]:
            if not isinstance(question, dict):
                yield f"malformed: a question of paragraph {number} is {type_name(question)}, not an object"
                continue
            yield {"title": fields.get("title", ""), "context": paragraph.get("context"), **question}


def answers_of(fields: dict) -> list[tuple[str, int]]:
    """The text of each answer and where it begins, in characters; none for a question that has no answer."""
    if fields.get("is_impossible") is True:
        return []
    answers = fields.get("answers")
    if isinstance(answers, dict):  # a row of the Hub has a list for each part
        texts, starts = json_values.list_of(answers, "text"), json_values.list_of(answers, "answer_start")
        if len(texts) != len(starts):
            raise BadLine(f"malformed: {len(texts)} texts of answers, and {len(starts)} places")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, list):
        raise BadLine("no answers: 'answers' must be a list; only --test files need none")
    objects = [json_values.as_object(answer, "an answer") for answer in answers]
    return [(json_values.text_of(found, "text"), json_values.integer_of(found, "answer_start")) for found in objects]


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> TriviaqaExample:
    """Make an example of a question; ``annotated`` says whether its answers are read."""
    name = task_corpus.id_of(fields, "id")
    question = replace_lone_surrogates(task_corpus.question_of(fields, "question"))
    context = replace_lone_surrogates(json_values.text_of(fields, "context"))
    if not context.strip():
        raise BadLine("empty document: context")
    notes: list[str] = []
    spans = {_span(context, text, start, notes) for text, start in (answers_of(fields) if annotated else ())}
    if annotated and not spans:
        notes.append(NO_ANSWER)
    title = fields.get("title")
    key = json.dumps([name, title if isinstance(title, str) else ""])
    return TriviaqaExample(key, (question, context), tuple(sorted(spans)), tuple(notes))


def _span(context: str, text: str, start: int, notes: list[str]) -> tuple[int, int]:
    """The characters of an answer: at its place, or else at the place next to it that has its text."""
    text = replace_lone_surrogates(text)
    if not text.strip():
        raise BadLine("empty answer")
    if start < 0 or not context.startswith(text, start):
        before, after = context.rfind(text, 0, max(start, 0) + len(text)), context.find(text, max(start, 0))
        places = [place for place in (before, after) if place >= 0]
        if not places:
            raise BadLine(f"answer that the context lacks: {text[:60]!r}")
        start = min(places, key=lambda place: abs(place - start))
        notes.append(MOVED)
    return start, start + len(text)


def name_of(record: Record) -> str:
    """The title of an article, or else the context's: questions about one context are in one split."""
    fields = keys.parsed_object(record.data) or {}
    names = (fields.get(key) for key in ("title", "context", "id"))
    return next((name for name in names if isinstance(name, str) and name), f"{Path(record.file).name}:{record.line}")


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    data = options.find(args, name_of, questions)
    table = functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH, max_answer=MAX_ANSWER_LENGTH)
    return options.corpus_of(data, parse, table, "triviaqa", name="squad", layout=TriviaqaSplit.layout, encode=encode)


make_parser = functools.partial(options.make_parser, "squad", __doc__, f"SQuAD's JSON, or rows: {options.FORMATS}")
main = functools.partial(command.main, make_parser, make_corpus)

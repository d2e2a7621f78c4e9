"""Questions about contexts in SQuAD's format, v1 and v2: articles with paragraphs, or a row a question."""

import json
from collections.abc import Iterator
from dataclasses import replace

from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine, type_name

from ..pipeline.records import Record
from . import keys


def questions(records: Iterator[Record]) -> Iterator[Record]:
    """Make a record of each question of articles: ``id``, ``title``, ``context``, ``question`` and ``answers``.

    A record that has no ``paragraphs`` stays as it is: a row of the Hub, or one to be rejected. A paragraph or question
    that is none is a record without data.
    """
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

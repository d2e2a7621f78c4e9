"""Make a data folder for question answering from TyDi QA's primary tasks (Clark et al., 2020).

The input is JSON lines, plain or gzip-compressed, with ``document_plaintext``, ``passage_answer_candidates`` and, in
training and development data, ``annotations``. All offsets are bytes of the plain text in UTF-8. Passages become the
paragraphs.
"""

import functools

from fairseq_poolingformer.tasks.question_answering.data import example_id_text
from fairseq_poolingformer.tasks.question_answering.official import TYDIQA_KEYS, tydiqa_annotation, tydiqa_span
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine

from . import questions
from .pipeline import command
from .pipeline.encode import one_line
from .pipeline.task_corpus import from_object, question_of
from .questions import AnnotatedAnswer, Candidate, QuestionExample


@from_object
def parse(fields: dict, annotated: bool) -> QuestionExample:
    """Make an example of a line; its id is the corpus's, a tab and the language."""
    language = one_line(json_values.text_of(fields, "language"))
    name = f"{example_id_text(json_values.example_id_of(fields))}\t{language}"
    question = question_of(fields, "question_text")
    text = json_values.text_of(fields, "document_plaintext")
    if not text.strip():
        raise BadLine("empty document: no text")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadLine(f"not Unicode: half a character at {error.start}, so that no bytes can be counted") from error
    candidates = _candidates(fields, len(data))
    paragraphs = questions.outermost(candidate for candidate in candidates if candidate.start < candidate.end)
    notes: list[str] = []
    annotations = tuple(
        _annotation(value, f"annotations[{number}]", data, candidates, paragraphs, notes)
        for number, value in enumerate(questions.annotations_of(fields) if annotated else ())
    )
    return QuestionExample(name, (question, text), paragraphs, annotations, tuple(notes))


def _candidates(fields: dict, size: int) -> list[Candidate]:
    """Return all passages; one without text has the offsets -1 and -1, or is empty."""
    candidates = []
    for index, value in enumerate(json_values.list_of(fields, "passage_answer_candidates")):
        span = tydiqa_span(value, f"passage_answer_candidates[{index}]", *TYDIQA_KEYS)
        if span.end_byte > size:
            raise BadLine(f"candidate out of range: number {index} ends at byte {span.end_byte} of {size}")
        candidates.append(Candidate(index, span.start_byte, span.end_byte))
    return candidates


def _annotation(
    value: object,
    where: str,
    data: bytes,
    candidates: list[Candidate],
    paragraphs: tuple[Candidate, ...],
    notes: list[str],
) -> AnnotatedAnswer:
    annotation = tydiqa_annotation(value, where)
    minimal, index = annotation.minimal_answer, annotation.passage_answer_index
    spans = [] if minimal.is_null else [(minimal.start_byte, minimal.end_byte)]
    answer = questions.checked_answer(candidates, paragraphs, index, spans, annotation.yes_no_answer, notes)
    if any(position < len(data) and data[position] & 0xC0 == 0x80 for span in spans for position in span):
        raise BadLine(f"answer cuts a character: {where}.minimal_answer is bytes {spans[0][0]} to {spans[0][1]}")
    return answer


make_parser = functools.partial(questions.make_parser, "tydiqa", __doc__)
make_corpus = functools.partial(questions.make_corpus, name="tydiqa", unit="byte", parse=parse, settings={})
main = command.main_of(__name__, make_parser, make_corpus)

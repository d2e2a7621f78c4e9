"""Make a data folder from questions about contexts in SQuAD's format (Rajpurkar et al. 2016, 2018), v1 and v2.

The input is the released files, or any records with ``id``, ``question``, ``context`` and ``answers``, as the Hub has
them. The task is ``triviaqa``, whose predictions are the official form, {id: answer}. It answers every question: those
of v2 without an answer train nothing, and count as wrong.
"""

import argparse
import functools
import json
import sys
from pathlib import Path

from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH, MAX_QUESTION_LENGTH
from fairseq_poolingformer.tasks.triviaqa.examples import TriviaqaSplit
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_values import BadLine

from .pipeline import command, task_corpus
from .pipeline.records import Record
from .pipeline.report import answer_table
from .pipeline.run import Corpus
from .records import keys, options, squad
from .triviaqa import TriviaqaExample, encode

NO_ANSWER = "question without an answer"
MOVED = "answer that is not where its place says"


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> TriviaqaExample:
    """Make an example of a question; ``annotated`` says whether its answers are read."""
    name = task_corpus.id_of(fields, "id")
    question = replace_lone_surrogates(task_corpus.question_of(fields, "question"))
    context = replace_lone_surrogates(json_values.text_of(fields, "context"))
    if not context.strip():
        raise BadLine("empty document: context")
    notes: list[str] = []
    spans = {_span(context, text, start, notes) for text, start in (squad.answers_of(fields) if annotated else ())}
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
    data = options.find(args, name_of, squad.questions)
    table = functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH, max_answer=MAX_ANSWER_LENGTH)
    return options.corpus_of(data, parse, table, "triviaqa", name="squad", layout=TriviaqaSplit.layout, encode=encode)


make_parser = functools.partial(options.make_parser, "squad", __doc__, f"SQuAD's JSON, or rows: {options.FORMATS}")
main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

"""Make a data folder for question answering from Natural Questions (Kwiatkowski et al., 2019).

The input is JSON lines, plain or gzip-compressed, in the original format with ``document_tokens`` or the simplified one
with ``document_text``; an example gives the same data in both.

A document's text is its tokens joined by single spaces; ``--html-tokens`` says what becomes of HTML's. The long answer
is the outermost candidate that holds the annotated one.
"""

import argparse
import functools
import itertools
import re

import numpy as np

from fairseq_poolingformer.tasks.question_answering.data import example_id_text
from fairseq_poolingformer.tasks.question_answering.official import natural_questions_annotation
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates

from . import questions
from .pipeline import command
from .pipeline.run import Corpus
from .pipeline.task_corpus import from_object, question_of
from .questions import MARKERS, AnnotatedAnswer, Candidate, QuestionExample

_TAG = re.compile(r"<[/!]?[A-Za-z-][^<>]*>")
_KIND_OF_TAG = {"table": "table", "tr": "table", "ul": "list", "ol": "list", "dl": "list", "li": "list", "dd": "list"}


@from_object
def parse(fields: dict, html_tokens: str, annotated: bool) -> QuestionExample:
    """Make an example of a line."""
    name = example_id_text(json_values.example_id_of(fields))
    question = question_of(fields, "question_text")
    tokens, is_tag = _tokens(fields)
    words = np.arange(len(tokens)) if html_tokens == "keep" else np.flatnonzero(~is_tag)
    text = replace_lone_surrogates(" ".join(map(tokens.__getitem__, words.tolist())))
    if not text.strip():
        raise BadLine("empty document: no text")
    candidates, is_top = _candidates(fields, len(tokens))
    paragraphs = questions.outermost(itertools.compress(candidates, is_top))
    notes: list[str] = []
    annotations = tuple(
        _annotation(value, f"annotations[{number}]", candidates, paragraphs, notes)
        for number, value in enumerate(questions.annotations_of(fields) if annotated else ())
    )
    markers = None
    if html_tokens == "markers":
        markers = tuple(_kind(tokens[paragraph.start]) for paragraph in paragraphs)
    return QuestionExample(name, (question, text), paragraphs, annotations, tuple(notes), words, markers)


def _tokens(fields: dict) -> tuple[list[str], np.ndarray]:
    """Return the document's tokens, without spaces inside, and (n,) True at HTML tags."""
    if "document_tokens" in fields:
        values = json_values.list_of(fields, "document_tokens")
        try:
            # the official simplified format also writes spaces inside a tag as underscores
            tokens = [value["token"].replace(" ", "_") for value in values]
            is_tag = [value["html_token"] is True for value in values]
        except (AttributeError, KeyError, TypeError) as error:
            raise BadLine("malformed: document_tokens has an element without 'token' or 'html_token'") from error
    elif "document_text" in fields:
        tokens = json_values.text_of(fields, "document_text").split(" ")
        is_tag = [token[:1] == "<" and _TAG.fullmatch(token) is not None for token in tokens]
    else:
        raise BadLine("missing key: neither document_tokens (original format) nor document_text (simplified)")
    return tokens, np.array(is_tag, bool)


def _candidates(fields: dict, size: int) -> tuple[list[Candidate], list[bool]]:
    """Return all candidates, and for each whether it is of the top level."""
    candidates, is_top = [], []
    for index, value in enumerate(json_values.list_of(fields, "long_answer_candidates")):
        value = json_values.as_object(value, f"long_answer_candidates[{index}]")
        start, end = json_values.integer_of(value, "start_token"), json_values.integer_of(value, "end_token")
        if not 0 <= start < end <= size:
            raise BadLine(f"candidate out of range: number {index} is tokens {start} to {end} of {size}")
        candidates.append(Candidate(index, start, end))
        is_top.append(value.get("top_level") is True)
    return candidates, is_top


def _annotation(
    value: object, where: str, candidates: list[Candidate], paragraphs: tuple[Candidate, ...], notes: list[str]
) -> AnnotatedAnswer:
    annotation = natural_questions_annotation(value, where)
    index = json_values.integer_of(value["long_answer"], "candidate_index")
    for number, span in enumerate(annotation.short_answers):
        if not span.has_tokens:
            raise BadLine(f"short answer without tokens: {where}.short_answers[{number}]")
    spans = (annotation.long_answer, *annotation.short_answers)
    tokens = [(span.start_token, span.end_token) for span in spans]
    answer = questions.checked_answer(candidates, paragraphs, index, tokens[1:], annotation.yes_no_answer, notes)
    expected = (candidates[index].start, candidates[index].end) if index >= 0 else (-1, -1)
    if tokens[0] != expected:
        raise BadLine(
            f"long answer contradicts its candidate: {where} has tokens {tokens[0][0]} to {tokens[0][1]}, candidate "
            f"{index} {expected[0]} to {expected[1]}"
        )
    return answer


def _kind(tag: str) -> int:
    name = re.match(r"<?([A-Za-z]*)", tag)[1].lower()
    return MARKERS.index(_KIND_OF_TAG.get(name, "paragraph"))


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = questions.make_parser("natural_questions", __doc__)
    text = "tags such as <P>: markers drops them and begins each paragraph, table and list of the top level with a "
    text += "marker of its kind; drop only drops them; keep takes them as text (default: %(default)s)"
    parser.add_argument("--html-tokens", choices=["markers", "drop", "keep"], default="markers", help=text)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names; see :func:`questions.make_corpus`."""
    options = {"html_tokens": args.html_tokens}
    return questions.make_corpus(args, "natural_questions", "token", functools.partial(parse, **options), options)


main = command.main_of(__name__, make_parser, make_corpus)

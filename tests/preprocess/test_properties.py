"""Preprocessors on lines that hypothesis chooses: no line ends a run."""

import functools
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from preprocess import arxiv_pubmed, natural_questions, plain_text, tydiqa
from preprocess.pipeline.records import Example, Record, Reject, Skipped
from preprocess.questions import QuestionExample

KEYS = [
    *("article", "article_text", "abstract", "abstract_text", "summary", "article_id", "section_names", "sections"),
    *("document_text", "question_text", "example_id", "annotations", "long_answer_candidates", "document_tokens"),
    *("document_plaintext", "passage_answer_candidates", "language", "minimal_answer", "start_token", "end_token"),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)
lines = st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode())
PARSERS = {
    "arxiv_pubmed": arxiv_pubmed.parse,
    "plain_text": plain_text.parse,
    "natural_questions": functools.partial(natural_questions.parse, html_tokens="keep", annotated=True),
    "natural_questions, test": functools.partial(natural_questions.parse, html_tokens="keep", annotated=False),
    "tydiqa": functools.partial(tydiqa.parse, annotated=True),
}


@pytest.mark.parametrize("corpus", PARSERS)
@given(line=lines)
def test_any_line_is_an_example_or_has_a_reason(corpus, line):
    parsed = PARSERS[corpus](Record("file", 1, line))
    is_example = isinstance(parsed, (Example, QuestionExample))
    assert is_example or (parsed.reason if isinstance(parsed, Reject) else parsed.kind)
    assert not isinstance(parsed, Skipped) or corpus == "plain_text"

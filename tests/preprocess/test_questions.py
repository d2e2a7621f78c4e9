import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_poolingformer.tasks.question_answering.data import AnswerType, QuestionAnsweringSplit
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer
from preprocess import questions
from preprocess.pipeline.report import Made
from preprocess.questions import AnnotatedAnswer, Candidate, QuestionExample
from tests.tasks.question_answering.folders import Example, write_folder
from tests.text.tiny_gpt2 import train_sentencepiece

WORDS = [
    *("the", "long", "café", "注意力", "การ", "😀", "12", "``"),
    *("'s", "e\u0301", "a\xa0b", "½", "\xa0", "<", "x" * 9, "ﷺ"),
]
SPARE = [90, 91, 92]
SHORT, LONG = 1, 4


@pytest.fixture(scope="module", params=["gpt2", "sentencepiece"])
def tokenizer(request, gpt2_folder, tmp_path_factory):
    if request.param == "gpt2":
        tokenizer = GPT2Tokenizer.from_files(gpt2_folder)
    else:
        path = tmp_path_factory.mktemp("spm") / "any.model"
        tokenizer = SentencePieceTokenizer(train_sentencepiece(path, [" ".join(WORDS)] * 9, 320, byte_fallback=True))
    tokenizer.spare_symbols = lambda: SPARE
    return tokenizer


@st.composite
def documents(draw):
    """Tokens of a corpus, None for dropped tags; disjoint paragraphs; a short answer in one of them."""
    tokens = draw(st.lists(st.one_of(st.none(), st.sampled_from(WORDS)), min_size=2, max_size=40))
    cuts = sorted(draw(st.sets(st.integers(0, len(tokens)), min_size=2, max_size=7)))
    paragraphs = [Candidate(3 * k, a, b) for k, (a, b) in enumerate(itertools.pairwise(cuts))]
    row = draw(st.integers(0, len(paragraphs) - 1))
    start = draw(st.integers(paragraphs[row].start, paragraphs[row].end - 1))
    return tokens, paragraphs, row, start, draw(st.integers(start + 1, paragraphs[row].end))


@given(document=documents(), markers=st.booleans())
@settings(deadline=None, max_examples=300, derandomize=True)
def test_answers_and_paragraphs_are_their_words(tokenizer, document, markers):
    tokens, paragraphs, row, start, end = document
    words = np.array([k for k, token in enumerate(tokens) if token is not None], np.int64)
    text = " ".join(tokens[k] for k in words)
    with_text = [k for k in words.tolist() if tokens[k].strip()]
    annotations = (AnnotatedAnswer(AnswerType.SHORT, row, start, end), AnnotatedAnswer(AnswerType.NULL))
    kinds = (0,) * len(paragraphs) if markers else None
    example = QuestionExample("1", ("the long", text), tuple(paragraphs), annotations, (), words, kinds)
    encoded = questions.encode(tokenizer, example)
    if not with_text:
        assert encoded.reason == "empty document"
        return
    starts, ends = encoded.arrays["start"], encoded.arrays["end"]
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    stored = encoded.arrays["paragraph"].reshape(-1, 5).tolist()
    expected = [p for p in paragraphs if any(p.start <= k < p.end for k in with_text)]
    assert [tuple(place[2:]) for place in stored] == [(p.index, p.start, p.end) for p in expected]
    for first, stop, _, first_word, end_word in stored:
        inside = [k for k in with_text if first_word <= k < end_word]
        assert (starts[first], ends[stop - 1]) == (inside[0], inside[-1] + 1)
    assert not markers or [encoded.arrays["document"][first] for first, *_ in stored] == [SPARE[0]] * len(stored)
    short, null = encoded.arrays["annotation"].reshape(-1, 4).tolist()
    assert null == [AnswerType.NULL, -1, -1, -1]
    held = [k for k in with_text if start <= k < end]
    place = expected.index(paragraphs[row]) if paragraphs[row] in expected else -1
    if not held:
        assert short == [AnswerType.LONG, place, -1, -1]
        assert questions.NO_TEXT in encoded.texts["notes"]
        return
    assert short[:2] == [AnswerType.SHORT, place]
    assert stored[place][0] <= short[2] < short[3] <= stored[place][1]
    assert (starts[short[2]], ends[short[3] - 1]) == (held[0], held[-1] + 1)
    assert (encoded.texts["notes"] == questions.NOT_EXACT) == ((held[0], held[-1] + 1) != (start, end))


def test_markers_move_what_follows(gpt2_folder):
    """Words of one token each; markers before tokens 0, 2 and 3."""
    tokenizer = GPT2Tokenizer.from_files(gpt2_folder)
    tokenizer.spare_symbols = lambda: SPARE
    paragraphs = (Candidate(0, 0, 1), Candidate(1, 2, 3), Candidate(4, 3, 5))
    annotations = (AnnotatedAnswer(AnswerType.SHORT, 2, 3, 5), AnnotatedAnswer(AnswerType.SHORT, 1, 2, 3))
    texts = ("the", "the the the the the")
    arrays = questions.encode(
        tokenizer, QuestionExample("1", texts, paragraphs, annotations, (), np.arange(5), (0, 2, 1))
    ).arrays
    first, later = tokenizer.encode("the the").tolist()
    assert arrays["document"].tolist() == [90, first, later, 92, later, 91, later, later]
    assert arrays["start"].tolist() == [0, 0, 1, 2, 2, 3, 3, 4]
    assert arrays["end"].tolist() == [0, 1, 2, 2, 3, 3, 4, 5]
    assert arrays["paragraph"].reshape(-1, 5)[:, :3].tolist() == [[0, 2, 0], [3, 5, 1], [5, 8, 4]]
    assert arrays["annotation"].reshape(-1, 4).tolist() == [[1, 2, 6, 8], [1, 1, 4, 5]]
    # two bytes that are one token, cut by passages that touch: it belongs to the first
    ids, starts, _ = tokenizer.encode_with_offsets("the the")
    assert starts.tolist() == [0, 4]
    paragraphs = (Candidate(0, 0, 5), Candidate(1, 5, 7))
    annotations = (AnnotatedAnswer(AnswerType.SHORT, 1, 5, 7), AnnotatedAnswer(AnswerType.SHORT, 0, 0, 5))
    encoded = questions.encode(tokenizer, QuestionExample("1", ("the", "the the"), paragraphs, annotations, ()))
    assert encoded.arrays["document"].tolist() == ids.tolist()
    assert encoded.arrays["paragraph"].tolist() == [0, 2, 0, 0, 5]
    assert encoded.arrays["annotation"].reshape(-1, 4).tolist() == [[4, -1, -1, -1], [1, 0, 0, 2]]
    assert encoded.texts["notes"] == f"{questions.NO_TEXT}; {questions.NOT_EXACT}"


def test_outermost():
    candidates = [Candidate(0, 5, 9), Candidate(1, 0, 4), Candidate(2, 1, 3), Candidate(3, 5, 6), Candidate(4, 0, 2)]
    assert questions.outermost(candidates) == (candidates[1], candidates[0])
    assert questions.outermost([]) == ()
    with pytest.raises(BadLine, match="candidates overlap: numbers 1 and 7"):
        questions.outermost([*candidates, Candidate(7, 3, 5)])


def test_the_table_by_hand(tmp_path):
    """Segments of 80 hold 74 document tokens beside a question of two, and one begins every ten."""
    examples = [
        Example([5, 6], [7] * 100, [(0, 10)], [(LONG, 0, -1, -1)]),  # four segments
        Example([5, 6], [7] * 94, [(2, 90)], [(SHORT, 0, 3, 84)]),  # three segments, none with the whole answer
        Example([5, 6], [7] * 6, [(0, 6)], [(0, -1, -1, -1)]),
    ]
    write_folder(tmp_path, {"valid": examples}, kind="tydiqa")
    (tmp_path / "valid.id.txt").write_text("1\tthai\n2\tfinnish\n3\tthai\n", encoding="utf-8")
    (tmp_path / "valid.notes.txt").write_text("odd; strange\n\nodd\n", encoding="utf-8")
    folder = DataFolder(tmp_path, QuestionAnsweringSplit.layout)
    lines = questions.table(Made(folder, "tydiqa", ["valid"], [80, 200], {"valid": 9}), doc_stride=10).split("\n")
    rows = [" ".join(line.replace(" %", "").split()) for line in lines[1:4]]
    assert rows == [
        "valid 3 2 94 99 8 1 3 0 33.3 33.3 0.0 0.0 33.3 9",
        "finnish 1 2 94 94 3 1 1 0 0.0 100.0 0.0 0.0 0.0",
        "thai 2 2 53 91 5 0 2 0 50.0 0.0 0.0 0.0 50.0",
    ]
    notes = ["valid: 2 × odd", "valid: 1 × strange", "valid: 1 × short answer of more than 30 tokens"]
    assert lines[4:] == notes

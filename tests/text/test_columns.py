"""CoNLL's columns as documents: marks of documents, sentences, and lines that are wrong."""

import io

import pytest

from fairseq_poolingformer.text.columns import documents


def found(text, max_bytes=10**6):
    return list(documents(io.BufferedReader(io.BytesIO(text)), "folder/x.conll", max_bytes))


def document(line, tokens, sentences):
    words = tokens.split()
    return line, {
        "id": f"x.conll:{line}",
        "tokens": words,
        "labels": [f"L-{word}" for word in words],
        "sentences": sentences,
    }


def test_a_document_goes_from_mark_to_mark_and_else_a_sentence_is_one():
    marked = b"-DOCSTART- -X- O\n\na X L-a\nb L-b\n\n\nc L-c\n-DOCSTART- O\nd\tL-d\n-DOCSTART-\n\n"
    assert found(marked) == [document(3, "a b c", [2, 1]), document(9, "d", [1])]
    assert found(b"\na L-a\r\nb L-b\r\n\r\nc L-c") == [document(2, "a b", [2]), document(5, "c", [1])]


@pytest.mark.parametrize(
    ("line", "problem"),
    [(b"word", "no label: line 3 has one column, 'word'"), (b"\xff L", "not UTF-8: byte 0 of line 3")],
)
def test_a_bad_line_spoils_its_document_alone(line, problem):
    (first, reason), good = found(b"-DOCSTART- O\na L-a\n" + line + b"\n\nb L-b\n-DOCSTART- O\nc L-c\n")
    assert first == 2
    assert reason.startswith(problem)
    assert good == document(7, "c", [1])


def test_a_document_of_too_many_bytes_is_none():
    assert found(b"-DOCSTART- O\n" + b"a L-a\n" * 9 + b"\na L-a\n-DOCSTART- O\nc L-c\n", 20) == [
        (2, None),
        document(14, "c", [1]),
    ]

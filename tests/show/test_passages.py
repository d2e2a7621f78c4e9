"""Texts as sentences, and the sentence of each token."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairseq_poolingformer.show.passages import Passages, characters

TEXT = "  One of them, by J. Smith. Two\tare here!\n\nA title\nThree: é😀 x. "


def test_sentences_lie_where_they_are_in_the_text():
    passages = Passages.sentences(TEXT)
    expected = ["One of them, by J. Smith.", "Two\tare here!", "A title", "Three: é😀 x."]
    assert [passages[number] for number in range(len(passages))] == expected


def test_white_space_belongs_to_the_sentence_before_it():
    passages = Passages.sentences(TEXT)
    found = passages.of_characters(np.arange(len(TEXT)))
    assert found[0] == 0
    for number, (start, end) in enumerate(passages.spans):
        assert (found[start:end] == number).all()
    assert found[TEXT.index("A title") - 1] == 1


@given(st.text(alphabet="aB.! \n\téß😀", max_size=40))
def test_every_word_is_in_one_sentence(text):
    passages = Passages.sentences(text)
    covered = np.zeros(len(text), dtype=int)
    for start, end in passages.spans:
        covered[start:end] += 1
    assert all(count == 1 for char, count in zip(text, covered, strict=True) if not char.isspace())
    assert covered.max(initial=0) <= 1


def test_bytes_become_characters():
    starts = np.array([len(TEXT[:number].encode()) for number in range(len(TEXT) + 1)])
    assert characters(TEXT, starts).tolist() == list(range(len(TEXT) + 1))

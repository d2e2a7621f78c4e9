"""The column format of CoNLL-2012: what is read, what is refused with its place, and what is written."""

import random
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.coreference.data import (
    SCORED_COLUMNS,
    RawDocument,
    document_and_part,
    parse_document,
    split_documents,
    write_document,
)
from fairseq_poolingformer.text.json_values import BadLine
from tests.tasks.coreference.official_coreference import random_case

FIXTURES = Path(__file__).parents[2] / "preprocess" / "fixtures" / "ontonotes"


def raw(*cells, begin="#begin document (a/b); part 001", end="#end document"):
    """A document whose words have these last columns; an empty one ends a sentence."""
    lines = [f"a/b 1 0 w{n} NN * - - - Ann * {cell}" if cell else "" for n, cell in enumerate(cells)]
    return RawDocument([begin, *lines, end], 1)


def test_reads_parts_speakers_sentences_and_nested_mentions():
    with open(FIXTURES / "train.v4_gold_conll", encoding="utf-8") as lines:
        documents = [parse_document(document) for document in split_documents(lines)]
    assert [document_and_part(document.name) for document in documents] == [
        ("bc/harbour/00/harbour_0001", 0),
        ("bc/harbour/00/harbour_0001", 1),
        ("nw/weather/01/weather_0100", 0),
        ("wb/garden/02/garden_0007", 0),
    ]
    first = documents[0]
    assert first.sentences[:2] == (8, 14)
    assert first.words[8:14] == ("With", "me", "is", "Peter", "Moss", ",")
    assert [first.speakers[word] for word in (0, 21, 22)] == ["Anna_Lind", "Anna_Lind", "Peter_Moss"]
    texts = [[" ".join(first.words[start:end]) for start, end in cluster] for cluster in first.clusters]
    assert texts[0] == ["I", "Anna Lind", "me"]
    assert texts[1][:3] == ["Peter Moss , the man who bought the old ferry", "I", "My"]
    assert texts[2] == ["the old ferry", "it", "it", "it", "that ferry"]
    assert texts[3] == ["My brother", "he", "my brother"]
    assert set(documents[2].speakers) == {"-"}


@pytest.mark.parametrize(
    ("cells", "clusters"),
    [
        (["(1|(2", "-", "1)|2)"], [[(0, 3)], [(0, 3)]]),  # the same words twice
        (["(1", "(2", "1)", "2)"], [[(0, 3)], [(1, 4)]]),  # crossing
        (["(1", "(1", "1)", "1)"], [[(1, 3), (0, 4)]]),  # of one entity the last one to begin ends first
        (["(3|(7)|(3", "3)", "", "3)"], [[(0, 1)], [(0, 2), (0, 3)]]),
        (["(1(2", "2)1)"], [[(0, 2)], [(0, 2)]]),  # the official scorer needs no |
        (["-", "_"], []),
    ],
)
def test_reads_every_kind_of_mention(cells, clusters):
    assert [list(cluster) for cluster in parse_document(raw(*cells)).clusters] == clusters


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (raw("(1", "-"), r"unbalanced bracket: \(1 of line 2 is never closed"),
        (raw("-", "", "4)"), r"unbalanced bracket: 4\) in line 4 closes nothing"),
        (raw("-", "(x)"), r"no mentions: the last column of line 3 is '\(x\)'"),
        (raw("-", "5"), r"no mentions: the last column of line 3"),
        (raw(), "empty document: no word after line 1"),
        (raw("-", end="a/b 1 1 w NN * - - - - * -"), "no end: the document that begins in line 1"),
        (raw("-", begin="text"), "text outside of a document: line 1"),
        (raw("-", begin="#begin document a/b"), "no name: line 1 must read"),
        (RawDocument(["#begin document (a); part 0", "a 0 0 word -", "#end document"], 7), "line 8 has 5, and .* 12"),
    ],
)
def test_a_bad_line_is_named(document, message):
    with pytest.raises(BadLine, match=message):
        parse_document(document)


def test_without_annotations_the_last_column_may_hold_anything():
    assert parse_document(raw("(1", "nothing"), annotated=False).clusters == ()


def test_bad_documents_leave_their_neighbours_whole():
    text = """\
# a comment

stray line
#begin document (a); part 000
a 0 0 one -
#begin document (b); part 000
b 0 0 two -

#end document
 \t
#begin document (c); part 000
c 0 0 three -"""
    found = list(split_documents(text.split("\n")))
    assert [(document.first_line, len(document.lines)) for document in found] == [(3, 1), (4, 2), (6, 4), (11, 2)]
    assert parse_document(found[2], SCORED_COLUMNS).words == ("two",)
    for bad in (0, 1, 3):
        with pytest.raises(BadLine):
            parse_document(found[bad], SCORED_COLUMNS)


def test_writes_what_it_reads():
    """Random entities: nested, crossing those of others, of one word, with the same words."""
    rng = random.Random(4)
    for number in range(200):
        clusters, _ = random_case(rng)
        words, speakers = [f"w{n}" for n in range(24)], ["Ann" if n % 3 else "Bob" for n in range(24)]
        lines = list(write_document(f"(x/{number}); part 003", words, [10, 1, 13], clusters, speakers))
        (document,) = split_documents(lines)
        found = parse_document(document)
        assert sorted(map(sorted, found.clusters)) == sorted(map(sorted, clusters))
        assert (found.name, found.sentences) == (f"(x/{number}); part 003", (10, 1, 13))
        assert (found.words, found.speakers) == (tuple(words), tuple(speakers))


def test_one_word_is_a_bracket_of_its_own_between_beginnings_and_ends():
    lines = list(write_document("(a); part 000", ["w"] * 3, [3], [[(0, 1), (1, 3)], [(0, 3), (2, 3)]]))
    assert [line.split("\t")[-1] for line in lines[1:4]] == ["(1|(0)", "(0", "(1)|0)|1)"]


def test_refuses_to_write_what_the_format_cannot_say():
    with pytest.raises(ValueError, match=r"\(a\): the mentions 0–2 and 1–3 of one entity cross"):
        list(write_document("(a)", ["w"] * 3, [3], [[(0, 2), (1, 3)]]))
    with pytest.raises(ValueError, match="mention 2–4, but the document has 3 words"):
        list(write_document("(a)", ["w"] * 3, [3], [[(2, 4)]]))
    with pytest.raises(ValueError, match="name must read"):
        list(write_document("a", ["w"], [1], []))

import pytest

from preprocess.pipeline.records import Example, Record
from preprocess.pipeline.vocabulary import _sentences, sample


def test_a_sample_fits_and_is_spread_over_the_records():
    records = [Record("file", line, b"x" * (line % 7) if line % 5 else None) for line in range(2000)]
    whole = sum(len(record.data or b"") for record in records)
    assert sample(iter(records), whole) == records
    half = sample(iter(records), whole // 2)
    assert half == sample(iter(records), whole // 2)
    assert whole // 2 - 6 <= sum(len(record.data or b"") for record in half) <= whole // 2
    lines = [record.line for record in half]
    assert lines == sorted(set(lines))
    for quarter in range(4):
        assert 200 < sum(quarter * 500 <= line < (quarter + 1) * 500 for line in lines) < 300
    assert set(lines) < {record.line for record in sample(iter(records), whole * 3 // 4)}
    large = [Record("file", line, b"x" * 100) for line in range(5)]
    assert len(sample(iter(large), 10)) == 1, "one at least"
    assert sample(iter(large[:1]), 10) == large[:1]
    assert sample(iter(()), 10) == []


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a b\n\n \nc", [3, 1]),
        ("word " * 500, [999, 995, 506]),  # cut before spaces, with which the next pieces begin
        ("語" * 2500, [1000, 1000, 500]),
        (" " + "語" * 1500, [1000, 501]),
        ("x" * 1000, [1000]),
        ("a\0b\ud800", [4]),
    ],
)
def test_sentences_are_short_pieces_of_the_text(text, lengths):
    """sentencepiece drops those of more than 4,192 bytes."""
    pieces = list(_sentences(Example("id", ("", text))))
    assert list(map(len, pieces)) == lengths
    shown = text.replace("\0", " ").replace("\ud800", "\ufffd")
    assert "".join(pieces).split() == shown.split() or "\n" in text
    assert max(len(piece.encode()) for piece in pieces) <= 4192

import pytest

from fairseq_poolingformer.text.surrogates import replace_lone_surrogates


@pytest.mark.parametrize(
    ("text", "expected"),
    [("é 😀", "é 😀"), ("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude00\ud800", "😀\ufffd")],
)
def test_lone_surrogates_are_replaced_and_pairs_joined(text, expected):
    assert replace_lone_surrogates(text) == expected
    expected.encode("utf-8")

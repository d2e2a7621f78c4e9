import pytest

from fairseq_poolingformer.tasks.summarization.rouge import lead_baseline, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("We pool. It helps! Does it? 95% of it.", ["We pool.", "It helps!", "Does it?", "95% of it."]),
        ("we pool . it helps . ", ["we pool .", "it helps ."]),
        ('He said "Stop." (Then he left.) "Why?"', ['He said "Stop."', "(Then he left.)", '"Why?"']),
        ("Liu et al. 2019 and J. Smith, i.e. Both, see Fig. 3.", None),
        ("smith et al . showed it", None),
        ("vs . them", None),
        ("A score of 3.5 on v1.2 of it", None),
        ("Ends in lower case. still the same", None),
        ("The limit is x. We pool A. Then B", ["The limit is x.", "We pool A. Then B"]),
        ("one line\n\ntwo lines", ["one line", "two lines"]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_rule(text, sentences):
    assert split_sentences(text) == ([text] if sentences is None else sentences)


def test_period_is_files2rouges_rule():
    assert split_sentences("we pool . It helps. So there .", "period") == ["we pool .", " It helps. So there ."]
    assert split_sentences("We pool. It helps.", "newline") == ["We pool. It helps."]


def test_unknown_rule():
    with pytest.raises(ValueError, match="'nltk' is unknown: choose one of rule, period, newline"):
        split_sentences("A.", "nltk")


def test_lead_baseline():
    document = "We pool  keys. It\u2028helps. End."
    assert lead_baseline(document, words=4) == "We pool keys. It"
    assert lead_baseline(document, sentences=2) == "We pool keys. It helps."
    for wrong in ({}, {"words": 1, "sentences": 1}, {"words": 0}):
        with pytest.raises(ValueError, match="give words or sentences"):
            lead_baseline(document, **wrong)

import pytest

pytest.importorskip("fairseq")

from fairseq import options, scoring
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_poolingformer.tasks.summarization.task  # noqa: F401  (registers)


def build(*argv: str):
    parser = options.get_generation_parser()
    args = options.parse_args_and_arch(parser, ["data", "--path", "model.pt", "--scoring", "rouge", *argv])
    return scoring.build_scorer(convert_namespace_to_omegaconf(args).scoring, None)


def test_result():
    scorer = build()
    scorer.add_string("We pool keys. It helps.", "It helped. We pooled keys.")
    scorer.add_string("A window.", "")
    text = scorer.result_string()
    assert text.startswith("ROUGE of 2 examples (rouge-score; stemming on; Lsum's sentences: rule")
    assert "ROUGE-Lsum  P 50.00 [" in text
    assert scorer.score() == pytest.approx(100 * (0.5 + 0.375 + 0.5) / 3)
    scorer.reset()
    assert scorer.score() == 0
    assert scorer.result_string() == "ROUGE of 0 examples: nothing to score"


def test_options():
    scorer = build("--rouge-no-stemmer", "--rouge-sentence-split", "period")
    scorer.add_string("pooled keys", "pooling keys")
    assert "stemming off; Lsum's sentences: period" in scorer.result_string()
    with pytest.raises(SystemExit):
        build("--rouge-sentence-split", "nltk")


def test_default_without_options():
    assert scoring.build_scorer("rouge", None).settings == {"stemmer": True, "sentence_split": "rule"}

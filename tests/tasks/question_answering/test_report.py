"""Averages over languages, by hand."""

from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    GoldExample,
    TydiqaAnnotation,
    TydiqaPrediction,
)
from fairseq_poolingformer.tasks.question_answering.scoring import (
    OperatingPoint,
    average_over_languages,
    pair_report,
    score_tydiqa_languages,
)


def test_average_over_languages_by_hand():
    """English 1, Finnish 1/2, Thai 0, and Klingon, which is not an official language."""
    gold, predictions = {}, {}
    rows = [("english", 1), ("finnish", 1), ("finnish", 0), ("thai", 0), ("klingon", 1)]
    for key, (language, right) in enumerate(rows):
        gold[key] = GoldExample(key, (TydiqaAnnotation(5, NO_SPAN, "NONE"),) * 2, language)
        predictions[key] = TydiqaPrediction(key, language, 5 if right else 6, 1.0)
    reports = {name: pair_report(one).long for name, one in score_tydiqa_languages(gold, predictions).items()}
    assert list(reports) == ["english", "finnish", "thai", "klingon"]
    official, with_english = average_over_languages(reports), average_over_languages(reports, english=True)
    assert (official.best.f1, official.examples) == (0.25, 3)
    assert (with_english.best.f1, with_english.examples) == (0.5, 4)
    assert average_over_languages({}).best == OperatingPoint(0, 0, 0, None)

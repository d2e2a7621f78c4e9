import json
from pathlib import Path

import numpy as np
import pytest

from fairseq_poolingformer.tasks.hotpotqa import data as hotpotqa
from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    GoldExample,
    NaturalQuestionsAnnotation,
    NaturalQuestionsPrediction,
    Span,
    read_gold,
    read_predictions,
)
from fairseq_poolingformer.tasks.question_answering.scoring import (
    TYDIQA_LANGUAGES,
    OperatingPoint,
    Outcomes,
    PrecisionRecallCurve,
    average_over_languages,
    official_averages,
    official_metrics,
    pair_report,
    score_natural_questions,
    score_tydiqa,
    score_tydiqa_languages,
)
from fairseq_poolingformer.tasks.triviaqa import data as triviaqa
from tests.tasks.question_answering.official_scripts import official_figures
from tests.tasks.question_answering.random_answers import CLONES, MAKERS, write_set
from tests.tasks.triviaqa import random_triviaqa

FIXTURE = Path(__file__).parent / "fixtures" / "official_figures.json"


def pair_figures(kind: str, gold_path: Path, predictions_path: Path) -> dict:
    """Ours, under the keys of :func:`official_figures`."""
    gold_kind, gold = read_gold([gold_path])
    predicted_kind, predictions = read_predictions(predictions_path)
    assert gold_kind == predicted_kind == kind
    if kind == "natural_questions":
        report = pair_report(score_natural_questions(gold, predictions))
        figures = official_metrics(report, "long", "short")
        for name, answers in (("long", report.long), ("short", report.short)):
            point = answers.all_given
            values = {"n": answers.examples, "f1": point.f1, "precision": point.precision, "recall": point.recall}
            figures |= {f"{name}-answer-{key}": value for key, value in values.items()}
        return figures
    languages = {name: pair_report(scored) for name, scored in score_tydiqa_languages(gold, predictions).items()}
    names = [name for name in TYDIQA_LANGUAGES if name in languages]
    figures = {name: official_metrics(languages[name], "passage", "minimal") for name in names}
    reports = ({name: getattr(languages[name], field) for name in languages} for field in ("long", "short"))
    figures["average"] = official_averages(*map(average_over_languages, reports))
    return figures | {"all": official_metrics(pair_report(score_tydiqa(gold, predictions)), "passage", "minimal")}


def triviaqa_figures(kind: str, gold: Path, predictions: Path) -> dict:
    right, answers = triviaqa.read_gold(gold), triviaqa.read_predictions(predictions)
    counts = {"pred_len": len(answers), "gold_len": len(right), "denominator": len(right)}
    return triviaqa.figures(right, answers) | counts | {"common": len(right.keys() & answers.keys())}


def hotpotqa_figures(kind: str, gold: Path, predictions: Path) -> dict:
    return hotpotqa.figures(hotpotqa.read_gold(gold), hotpotqa.read_predictions(predictions))


# our figures, random sets, the writer of their files, and the name of the official scripts' clone
KINDS = {
    **{kind: (pair_figures, MAKERS[kind], write_set, CLONES[kind]) for kind in MAKERS},
    **{
        kind: (figures, random_triviaqa.MAKERS[kind], random_triviaqa.write_set, random_triviaqa.CLONES[kind])
        for kind, figures in (("triviaqa", triviaqa_figures), ("hotpotqa", hotpotqa_figures))
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_figures_that_the_official_scripts_gave(tmp_path, kind):
    figures, _, write, _ = KINDS[kind]
    sets = json.loads(FIXTURE.read_text(encoding="utf-8"))[kind]
    assert len(sets) == 3
    for case in sets:
        ours, official = figures(kind, *write(tmp_path, case["gold"], case["predictions"])), case["figures"]
        assert ours.keys() == official.keys()
        for key in official:
            assert ours[key] == pytest.approx(official[key], rel=1e-12)  # the order of sums may differ by version


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_official_scripts_to_the_last_bit(tmp_path, kind, pytestconfig):
    figures, make, write, clone = KINDS[kind]
    folder = Path(pytestconfig.getoption("--official-qa-scripts", default=None) or "/no/folder") / clone
    if not folder.is_dir():
        pytest.skip(f"needs --official-qa-scripts FOLDER with {clone}")
    sizes = (1, 2, 5, 20, 60, 300)
    files = [write(tmp_path / str(seed), *make(seed, sizes[seed % 6])) for seed in range(100, 220)]
    assert [figures(kind, *pair) for pair in files] == official_figures(kind, folder, files)


@pytest.mark.parametrize(
    ("predicted", "message"),
    [(range(4, 10), "4 have no prediction, 5 predictions are not"), (range(6), "0 have no prediction, 1 predictions")],
)
def test_natural_questions_refuses_other_examples(predicted, message):
    nothing = NaturalQuestionsAnnotation(NO_SPAN, (), "NONE")
    gold = {key: GoldExample(key, (nothing,) * 5) for key in range(5)}
    predictions = {key: NaturalQuestionsPrediction(key) for key in predicted}
    with pytest.raises(ValueError, match=f"not of the same examples: {message}"):
        score_natural_questions(gold, predictions)


def test_nothing_right_nothing_at_all_and_infinite_scores():
    for curve in (_curve(), _curve((1, 1, 0, 5), (0, 1, 0, 4)), _curve((0, 0, 0, 1))):
        assert curve.best() == OperatingPoint(0, 0, 0, 0)
        assert curve.at_precision(0.5) == OperatingPoint(0, 0, 0, None)
        assert curve.at_threshold(float("-inf")).f1 == 0
    curve = _curve((1, 1, 1, float("inf")), (1, 1, 0, float("-inf")), (1, 1, 0, float("-inf")))
    assert curve.threshold.tolist() == [float("inf"), float("-inf")]
    assert curve.best() == OperatingPoint(0.5, 1, 1 / 3, float("inf"))


def _curve(*rows: tuple) -> PrecisionRecallCurve:
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return PrecisionRecallCurve(Outcomes(columns[0] != 0, columns[1] != 0, columns[2], columns[3]))


NULL, ANSWERS = Span(-1, -1), (Span(1, 3), Span(5, 9))


@pytest.mark.parametrize(
    ("predicted", "is_right"),
    [(ANSWERS[::-1], True), ((NULL, *ANSWERS), True), (ANSWERS[:1], False), ((*ANSWERS, Span(1, 4)), False)],
)
def test_short_answers_are_all_of_an_annotators_and_no_others(predicted, is_right):
    gold = {1: GoldExample(1, (NaturalQuestionsAnnotation(NO_SPAN, ANSWERS, "NONE"),) * 5)}
    predictions = {1: NaturalQuestionsPrediction(1, short_answers=predicted)}
    assert score_natural_questions(gold, predictions).short.credit.tolist() == [is_right]

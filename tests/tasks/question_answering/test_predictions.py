"""Records of best answers to official predictions, by hand."""

from fairseq_poolingformer.tasks.question_answering.examples import QuestionAnsweringSplit
from fairseq_poolingformer.tasks.question_answering.gold import NO_SPAN, Span
from fairseq_poolingformer.tasks.question_answering.head import BestAnswers
from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    NaturalQuestionsPrediction,
    TydiqaPrediction,
)
from fairseq_poolingformer.tasks.question_answering.predictions import ExampleIds, official_predictions
from tests.tasks.question_answering.folders import Example, write_folder

EXAMPLES = [
    Example([5], [6] * 20, [(2, 9), (9, 20)]),
    Example([5], [6] * 20, [(2, 9), (9, 20)]),
    Example([5], [6] * 4),
    Example([5], []),
]


def records():
    """A span in the second paragraph; no in the first; a span in a document without paragraphs; nothing."""
    best = BestAnswers(4).records
    names = ["score", "paragraph", "first_token", "end_token", "long_score", "span_score", "yes_score", "no_score"]
    best[names][:3] = [
        (9.0, 1, 10, 13, 2.5, 4.5, -1.0, -2.0),
        (8.0, 0, 3, 4, 1.5, -4.5, -1.0, 0.5),
        (7.0, -1, 0, 2, 0.25, 3.5, -1.0, -2.0),
    ]
    return best


def predictions(folder, kind, examples=range(4)):
    write_folder(folder, {"valid": EXAMPLES}, kind=kind)
    split = QuestionAnsweringSplit.open(folder, "valid")
    return list(official_predictions(ExampleIds.read(folder, "valid"), split, records(), examples))


def test_natural_questions(tmp_path):
    """Token k of a document is at 10 k to 10 k + 7."""
    long = Span(start_token=90, end_token=197), Span(start_token=20, end_token=87)
    assert predictions(tmp_path, "natural_questions") == [
        NaturalQuestionsPrediction(100, long[0], 2.5, (Span(start_token=100, end_token=127),), 4.5),
        NaturalQuestionsPrediction(101, long[1], 1.5, (), 0.5, yes_no_answer="NO"),
        NaturalQuestionsPrediction(102, NO_SPAN, 0.0, (Span(start_token=0, end_token=17),), 3.5),
        NaturalQuestionsPrediction(103),
    ]


def test_tydiqa(tmp_path):
    """Paragraph p is the corpus's candidate 3 p + 1."""
    assert predictions(tmp_path, "tydiqa") == [
        TydiqaPrediction(100, "english", 4, 2.5, Span(start_byte=100, end_byte=127), 4.5),
        TydiqaPrediction(101, "english", 1, 1.5, NO_SPAN, 0.5, yes_no_answer="NO"),
        TydiqaPrediction(102, "english", -1, 0.0, Span(start_byte=0, end_byte=17), 3.5),
        TydiqaPrediction(103, "english"),
    ]
    assert [p.example_id for p in predictions(tmp_path, "tydiqa", range(1, 3))] == [101, 102]

"""Records of best answers to official predictions, by hand."""

import pytest

from fairseq_poolingformer.cli.predict_qa import join
from fairseq_poolingformer.qa.answers import BestAnswers
from fairseq_poolingformer.qa.folder import QuestionAnsweringSplit
from fairseq_poolingformer.qa.official_predictions import NaturalQuestionsPrediction, TydiqaPrediction
from fairseq_poolingformer.qa.prediction_files import write_predictions
from fairseq_poolingformer.qa.predictions import Corpus, official_predictions
from fairseq_poolingformer.qa.spans import NO_SPAN, Span
from tests.qa.folders import Example, write_folder

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
    return list(official_predictions(Corpus.read(folder, "valid"), split, records(), examples))


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


def test_ids_are_numbers_where_they_look_so(tmp_path):
    folder = write_folder(tmp_path, {"valid": EXAMPLES[:3]})
    (folder / "valid.id.txt").write_text("-75499\nabc\n12\n", encoding="utf-8")
    assert Corpus.read(folder, "valid").example_ids == [-75499, "abc", 12]


def test_a_corpus_that_does_not_fit_is_refused(tmp_path):
    folder = write_folder(tmp_path, {"valid": EXAMPLES})
    (folder / "corpus.json").write_text('{"kind": "squad"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus.json: unknown kind 'squad'"):
        Corpus.read(folder, "valid")
    (folder / "corpus.json").write_text('{"kind": "tydiqa"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"valid.id.txt, line 1: 1 columns where tydiqa has 2"):
        Corpus.read(folder, "valid")


def test_shards_that_do_not_make_a_whole_are_refused(tmp_path):
    whole = predictions(tmp_path, "natural_questions")
    corpus = Corpus.read(tmp_path, "valid")
    files = {name: tmp_path / f"{name}.json" for name in ("first", "rest", "short", "other", "tydiqa")}
    write_predictions(files["first"], corpus.kind, whole[:1])
    write_predictions(files["rest"], corpus.kind, whole[1:])
    write_predictions(files["short"], corpus.kind, whole[2:])
    write_predictions(files["other"], corpus.kind, [NaturalQuestionsPrediction(7)])
    write_predictions(files["tydiqa"], "tydiqa", [TydiqaPrediction(100, "thai")])
    assert join([files["rest"], files["first"]], corpus) == whole
    for names, message in [
        (("first", "short"), "1 of 4 examples have no prediction, the first is 101"),
        (("first", "rest", "short"), "short.json: example 102 stands in another file"),
        (("first", "rest", "other"), "example 7 is none of the data folder's"),
        (("first", "tydiqa"), "tydiqa.json: predictions of tydiqa"),
    ]:
        with pytest.raises(ValueError, match=message):
            join([files[name] for name in names], corpus)

import pytest
import torch

from fairseq_poolingformer.cli.models import read_batches
from fairseq_poolingformer.tasks.question_answering import official
from fairseq_poolingformer.tasks.question_answering.data import QuestionAnsweringSplit, example_id_text
from fairseq_poolingformer.tasks.question_answering.head import AnswerLogits, BestAnswers
from fairseq_poolingformer.tasks.question_answering.predictions import ExampleIds, official_predictions
from fairseq_poolingformer.tasks.question_answering.predictions import predict as predict_answers
from tests.tasks.question_answering.folders import Example, random_examples, write_folder
from tests.tasks.question_answering.test_data import labelled

EXAMPLES = [*[Example([5], [6] * 20, [(2, 9), (9, 20)])] * 2, Example([5], [6] * 4), Example([5], [])]


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
    long = official.Span(start_token=90, end_token=197), official.Span(start_token=20, end_token=87)
    assert predictions(tmp_path, "natural_questions") == [
        official.NaturalQuestionsPrediction(100, long[0], 2.5, (official.Span(start_token=100, end_token=127),), 4.5),
        official.NaturalQuestionsPrediction(101, long[1], 1.5, (), 0.5, yes_no_answer="NO"),
        official.NaturalQuestionsPrediction(
            102, official.NO_SPAN, 0.0, (official.Span(start_token=0, end_token=17),), 3.5
        ),
        official.NaturalQuestionsPrediction(103),
    ]


def test_tydiqa(tmp_path):
    assert predictions(tmp_path, "tydiqa") == [
        official.TydiqaPrediction(100, "english", 4, 2.5, official.Span(start_byte=100, end_byte=127), 4.5),
        official.TydiqaPrediction(101, "english", 1, 1.5, official.NO_SPAN, 0.5, yes_no_answer="NO"),
        official.TydiqaPrediction(102, "english", -1, 0.0, official.Span(start_byte=0, end_byte=17), 3.5),
        official.TydiqaPrediction(103, "english"),
    ]
    assert [p.example_id for p in predictions(tmp_path, "tydiqa", range(1, 3))] == [101, 102]


def test_batches_have_the_segments_of_the_examples_once_and_no_more_tokens(tmp_path):
    dataset, _ = labelled(tmp_path, random_examples(60))
    rows = []

    def model(src_tokens, global_mask, head_inputs):
        assert src_tokens.numel() <= 40
        rows.extend(src_tokens[:, 0].tolist())
        mask = head_inputs["span_mask"]
        spans = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        paragraphs = torch.zeros(len(mask), head_inputs["num_paragraphs"] + 1)
        return AnswerLogits(spans, spans, paragraphs, torch.zeros(len(mask), 5)), {}

    records = predict_answers(
        [model], dataset, range(20, 40), lambda batches: read_batches(dataset, batches, "cpu", 0, ""), 40
    )
    bounds = dataset.segments.bounds
    assert len(rows) == bounds[40] - bounds[20]
    answered = {number for number in range(60) if records["score"][number] > -torch.inf}
    assert answered == {number for number in range(20, 40) if len(dataset.split.document[number])}


def test_ids_keep_their_type_and_a_line_without_an_id_is_refused(tmp_path):
    """Strings of digits, of line breaks and tabs, and of half a character as well."""
    ids = [-75499, "abc", 12, "12", "", "a\tb\r\n\u2028", "\ud800", '"7"', 2**63]
    path = write_folder(tmp_path, {"valid": random_examples(4)}) / "valid.id.txt"
    path.write_text("".join(example_id_text(name) + "\n" for name in ids), encoding="utf-8")
    read = ExampleIds.read(tmp_path, "valid")
    assert [(name, type(name)) for name in read.example_ids] == [(name, type(name)) for name in ids]
    assert len(read) == len(ids)
    for line in ("abc", "1.5", "null", "[1]", ""):
        path.write_text(f"12\n{line}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"valid.id.txt, line 2: .* is no id; preprocess again"):
            ExampleIds.read(tmp_path, "valid")

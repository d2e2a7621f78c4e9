"""``poolingformer-predict-qa``: joining shards, and arguments that cannot work."""

import pytest
import torch

from fairseq_poolingformer.cli.predict_qa import join, main, predict
from fairseq_poolingformer.tasks.question_answering.head import AnswerLogits
from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    NaturalQuestionsPrediction,
    TydiqaPrediction,
    write_predictions,
)
from fairseq_poolingformer.tasks.question_answering.predictions import ExampleIds
from tests.tasks.question_answering.folders import random_examples
from tests.tasks.question_answering.test_labels import labelled
from tests.tasks.question_answering.test_predictions import predictions


def test_shards_that_do_not_make_a_whole_are_refused(tmp_path):
    whole = predictions(tmp_path, "natural_questions")
    ids = ExampleIds.read(tmp_path, "valid")
    files = {name: tmp_path / f"{name}.json" for name in ("first", "rest", "short", "other", "tydiqa")}
    write_predictions(files["first"], ids.kind, whole[:1])
    write_predictions(files["rest"], ids.kind, whole[1:])
    write_predictions(files["short"], ids.kind, whole[2:])
    write_predictions(files["other"], ids.kind, [NaturalQuestionsPrediction(7)])
    write_predictions(files["tydiqa"], "tydiqa", [TydiqaPrediction(100, "thai")])
    assert join([files["rest"], files["first"]], ids) == whole
    for names, message in [
        (("first", "short"), "1 of 4 examples have no prediction, the first is 101"),
        (("first", "rest", "short"), "short.json: example 102 is in another file"),
        (("first", "rest", "other"), "example 7 is not in the data folder's split"),
        (("first", "tydiqa"), "tydiqa.json: predictions of tydiqa"),
    ]:
        with pytest.raises(ValueError, match=message):
            join([files[name] for name in names], ids)


def test_batches_have_the_segments_of_the_examples_once_and_no_more_tokens(tmp_path):
    dataset, _ = labelled(tmp_path, random_examples(60))
    seen = []

    def model(src_tokens, global_mask, head_inputs):
        assert src_tokens.numel() <= 40
        seen.extend(src_tokens[:, 0].tolist())
        mask = head_inputs["span_mask"]
        spans = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        paragraphs = torch.zeros(len(mask), head_inputs["num_paragraphs"] + 1)
        return AnswerLogits(spans, spans, paragraphs, torch.zeros(len(mask), 5)), {}

    records = predict([model], dataset, range(20, 40), device="cpu", max_tokens=40)
    bounds = dataset.segments.bounds
    assert len(seen) == bounds[40] - bounds[20]
    answered = {number for number in range(60) if records["score"][number] > -torch.inf}
    assert answered == {number for number in range(20, 40) if len(dataset.split.document[number])}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give --path to predict, or --join"),
        (["--path", "a.pt", "--join", "b.json"], "give --path to predict, or --join"),
        (["--join", "b.json", "--readable", "b.tsv"], "--readable goes with --path"),
        (
            ["--path", "a.pt", "--max-answer-length", "0"],
            "argument --max-answer-length: must be a whole number, 1 or more",
        ),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path), "--output", str(tmp_path / "out.json"), *flags])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err

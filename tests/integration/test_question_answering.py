"""From a data folder to predictions: fairseq-train overfits a few questions, poolingformer-predict answers them."""

import json
import shutil

import numpy as np
import pytest
import torch

from fairseq_poolingformer.cli.predict import main
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer
from tests.lab import ROOT, run
from tests.tasks.question_answering.folders import Example, write_folder
from tests.text.tiny_gpt2 import write_vocabulary

SHORT, YES, NO, LONG = range(1, 5)
MODEL = [
    *("--task", "question_answering", "--arch", "poolingformer_roberta_tiny", "--criterion", "question_answering"),
    *("--max-positions", 40, "--doc-stride", 12, "--max-question-length", 8, "--window-size", 8),
    *(
        "--pooled-window-size",
        24,
        "--dropout",
        0,
        "--attention-dropout",
        0,
        "--user-dir",
        ROOT / "fairseq_poolingformer",
    ),
]
TRAINING = [
    *("--optimizer", "adam", "--lr", "2e-3", "--batch-size", 8, "--num-workers", 0, "--log-format", "json"),
    *("--cpu", "--negative-share", 1, "--no-epoch-checkpoints", "--disable-validation"),
]
PARAGRAPHS = [(0, 8), (8, 15), (17, 24), (25, 32)]
ANNOTATIONS = [
    (SHORT, 2, 19, 21),
    (SHORT, 0, 3, 4),
    (YES, 1, -1, -1),
    (NO, 3, -1, -1),
    (LONG, 2, -1, -1),
    (0, -1, -1, -1),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = write_vocabulary(tmp_path_factory.mktemp("vocabulary"))
    return GPT2Tokenizer(*(folder / name for name in GPT2Tokenizer.files))


@pytest.fixture(scope="module")
def examples(tokenizer):
    """Six questions; the first and the last have a document of two segments."""
    rng = np.random.default_rng(0)
    lengths = [44, 33, 32, 32, 33, 44]
    return [
        Example(rng.integers(4, 150, 4).tolist(), rng.integers(4, 150, length).tolist(), PARAGRAPHS, [annotation])
        for length, annotation in zip(lengths, ANNOTATIONS, strict=True)
    ]


def data_folder(folder, tokenizer, examples, kind):
    write_folder(folder, {"train": examples, "valid": examples}, kind=kind)
    tokenizer.save(folder)
    tokenizer.write_dictionary(folder / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory, tokenizer, examples):
    return data_folder(tmp_path_factory.mktemp("data"), tokenizer, examples, "natural_questions")


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    log = run("fairseq_cli.train", data, *MODEL, *TRAINING, "--save-dir", folder, "--max-update", 150)
    assert "train: 5 of 6 questions have an answer" in log
    return folder / "checkpoint_last.pt"


def predict(data, *flags):
    return run("fairseq_poolingformer.cli.predict", data, "--device", "cpu", "--num-workers", 0, *flags)


@pytest.fixture(scope="module")
def predictions(data, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    predict(data, "--path", checkpoint, "--output", folder / "all.json", "--readable", folder / "all.tsv")
    return json.loads((folder / "all.json").read_text(encoding="utf-8"))["predictions"], folder


@pytest.mark.slow
def test_predictions_equal_the_answers(predictions):
    found, _ = predictions
    assert [p["example_id"] for p in found] == [100, 101, 102, 103, 104, 105]
    for prediction, (kind, row, first, end) in zip(found, ANNOTATIONS, strict=True):
        if kind == 0:
            assert prediction["long_answer_score"] < 0
            assert prediction["short_answers_score"] < 0
            continue
        a, b = PARAGRAPHS[row]
        expected = {"start_byte": -1, "end_byte": -1, "start_token": 10 * a, "end_token": 10 * (b - 1) + 7}
        assert prediction["long_answer"] == expected
        assert prediction["long_answer_score"] > 0
        assert (prediction["short_answers_score"] > 0) == (kind != LONG)
        if kind != LONG:
            assert prediction["yes_no_answer"] == {YES: "YES", NO: "NO"}.get(kind, "NONE")
        if kind == SHORT:
            expected = {"start_byte": -1, "end_byte": -1, "start_token": 10 * first, "end_token": 10 * (end - 1) + 7}
            assert prediction["short_answers"] == [expected]


@pytest.mark.slow
def test_readable_answers_are_the_documents_text(predictions, examples, tokenizer):
    found, folder = predictions
    heading, *lines = (folder / "all.tsv").read_text(encoding="utf-8").splitlines()
    assert heading.split("\t")[:3] == ["example_id", "question", "short_answer"]
    assert len(lines) == len(examples)
    for line, prediction, example, (kind, row, first, end) in zip(lines, found, examples, ANNOTATIONS, strict=True):
        number, question, short, short_score, long, long_score = line.split("\t")
        assert number == str(prediction["example_id"])
        assert question == " ".join(tokenizer.decode(example.question).split())
        assert float(short_score) == pytest.approx(prediction["short_answers_score"], abs=0.006)
        assert float(long_score) == pytest.approx(prediction["long_answer_score"], abs=0.006)
        if kind == SHORT:
            assert short == " ".join(tokenizer.decode(example.document[first:end]).split())
        if kind != 0:
            assert long == " ".join(tokenizer.decode(example.document[slice(*PARAGRAPHS[row])]).split())


@pytest.mark.slow
def test_shards_join_to_the_whole_and_batches_change_nothing(data, checkpoint, predictions, tmp_path):
    found, _ = predictions
    shards = [tmp_path / f"{shard}.json.gz" for shard in range(2)]
    for number, shard in enumerate(shards):
        flags = ["--num-shards", 2, "--shard-id", number, "--max-tokens", 40]
        log = predict(data, "--path", checkpoint, "--output", shard, *flags)
        assert f"{shard}: predictions of 3 examples of valid" in log
    predict(data, "--join", *reversed(shards), "--output", tmp_path / "joined.json")
    joined = json.loads((tmp_path / "joined.json").read_text(encoding="utf-8"))["predictions"]
    for one, other in zip(joined, found, strict=True):
        assert one == {k: pytest.approx(v, abs=1e-3) if k.endswith("_score") else v for k, v in other.items()}


@pytest.mark.slow
def test_an_ensemble_of_equals_in_half_precision_and_another_corpus(
    checkpoint, predictions, tokenizer, examples, tmp_path
):
    found, _ = predictions
    data = data_folder(tmp_path / "tydiqa", tokenizer, examples, "tydiqa")
    predict(data, "--path", f"{checkpoint}:{checkpoint}", "--output", tmp_path / "all.jsonl", "--precision", "bf16")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    for line, prediction, (kind, row, first, end) in zip(lines, found, ANNOTATIONS, strict=True):
        assert (line["example_id"], line["language"]) == (prediction["example_id"], "english")
        if kind != 0:
            assert line["passage_answer_index"] == 3 * row + 1
            assert line["passage_answer_score"] == pytest.approx(prediction["long_answer_score"], rel=0.1)
        if kind == SHORT:
            assert line["minimal_answer"] == {"start_byte_offset": 10 * first, "end_byte_offset": 10 * (end - 1) + 7}


@pytest.mark.slow
def test_answers_of_one_token_at_most(data, checkpoint, tmp_path):
    """The two short answers have one and two tokens."""
    output = tmp_path / "short.json"
    log = predict(data, "--path", checkpoint, "--output", output, "--max-answer-length", 1)
    assert "note: 1 annotated short answers of valid have more than --max-answer-length 1 tokens" in log
    for prediction in json.loads(output.read_text(encoding="utf-8"))["predictions"]:
        assert all(span["end_token"] - span["start_token"] == 7 for span in prediction["short_answers"])


@pytest.mark.slow
def test_no_dropout_in_prediction(data, checkpoint, predictions, tmp_path):
    found, _ = predictions
    state = torch.load(checkpoint, weights_only=False)
    assert state["cfg"]["model"].dropout == 0
    state["cfg"]["model"].dropout = 0.9
    torch.save(state, tmp_path / "dropout.pt")
    predict(data, "--path", tmp_path / "dropout.pt", "--output", tmp_path / "all.json")
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["predictions"] == found


@pytest.mark.slow
def test_what_cannot_be_predicted_is_refused_in_a_line(
    data, checkpoint, predictions, tmp_path, tmp_path_factory, capsys
):
    _, folder = predictions
    without_id = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(data, without_id)
    ids = (without_id / "valid.id.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (without_id / "valid.id.txt").write_text("".join(ids[1:]), encoding="utf-8")
    assert main([str(x) for x in (without_id, "--path", checkpoint, "--output", tmp_path / "out.json")]) == 1
    assert "6 examples in valid, but 5 example ids; preprocess again" in capsys.readouterr().err
    output = ["--output", tmp_path / "out.json"]
    both = [folder / "all.json", folder / "all.json"]
    for flags, message in [
        (["--path", tmp_path / "none.pt", *output], "none.pt"),
        (["--path", checkpoint, *output, "--subset", "dev"], "dev.id.txt"),
        (["--path", checkpoint, *output, "--max-positions", 50], "--max-positions 50, but the model takes 40"),
        (["--path", checkpoint, *output, "--doc-stride", 39], "doc_stride 39 would skip"),
        (["--path", checkpoint, *output, "--max-tokens", 30], "--max-tokens 30 is less than a segment"),
        (["--path", checkpoint, "--output", tmp_path / "none" / "out.json"], "out.json"),
        (["--join", *both, *output], "example 100 is in another file"),
    ]:
        assert main([str(x) for x in (data, "--device", "cpu", *flags)]) == 1
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

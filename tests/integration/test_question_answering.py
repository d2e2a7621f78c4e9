"""From a data folder to predictions: fairseq-train overfits a few questions, poolingformer predict answers them."""

import gzip
import json
from itertools import chain

import numpy as np
import pytest

from fairseq_poolingformer.cli.predict import main
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from tests.lab import PLUGIN, UPDATE, copy, run, texts
from tests.tasks.question_answering.folders import Example, write_folder

SHORT, YES, NO, LONG = range(1, 5)
TRAINING = [
    *("--task", "question_answering", "--arch", "poolingformer_roberta_tiny", "--criterion", "question_answering"),
    *("--max-positions", 40, "--doc-stride", 12, "--max-question-length", 8, "--window-size", 8, *PLUGIN),
    *("--pooled-window-size", 24, "--dropout", 0, "--attention-dropout", 0, "--negative-share", 1, *UPDATE),
    *("--lr", "2e-3", "--batch-size", 8, "--max-update", 150, "--no-epoch-checkpoints", "--disable-validation"),
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
def examples():
    """Six questions; the first and the last have a document of two segments."""
    rng = np.random.default_rng(0)
    lengths = [44, 33, 32, 32, 33, 44]
    return [
        Example(rng.integers(4, 150, 4).tolist(), rng.integers(4, 150, length).tolist(), PARAGRAPHS, [annotation])
        for length, annotation in zip(lengths, ANNOTATIONS, strict=True)
    ]


def data_folder(folder, examples, kind):
    write_folder(folder, {"train": examples, "valid": examples}, kind=kind)
    copy(texts() / "tokenizer", folder / "tokenizer")
    copy(texts() / "dict.txt", folder / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory, examples):
    return data_folder(tmp_path_factory.mktemp("data"), examples, "natural_questions")


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    log = run("fairseq_cli.train", data, *TRAINING, "--save-dir", folder)
    assert "train: 5 of 6 questions have an answer" in log
    return folder / "checkpoint_last.pt"


def predict(data, *flags):
    return main([str(word) for word in (data, "--device", "cpu", "--num-workers", 0, *flags)])


def written(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path, encoding="utf-8") as file:
        return json.load(file)["predictions"]


@pytest.fixture(scope="module")
def predictions(data, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    output = ("--output", folder / "all.json", "--readable", folder / "all.tsv")
    run("fairseq_poolingformer.cli.main", "predict", data, "--device", "cpu", "--path", checkpoint, *output)
    return written(folder / "all.json"), folder


@pytest.mark.full
def test_predictions_equal_the_answers(predictions):
    actual, _ = predictions
    assert [p["example_id"] for p in actual] == [100, 101, 102, 103, 104, 105]
    for prediction, (kind, row, first, end) in zip(actual, ANNOTATIONS, strict=True):
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


@pytest.mark.full
def test_readable_answers_are_the_documents_text(data, predictions, examples):
    (expected, folder), tokenizer = predictions, load_tokenizer(data)
    heading, *lines = (folder / "all.tsv").read_text(encoding="utf-8").splitlines()
    assert heading.split("\t")[:3] == ["example_id", "question", "short_answer"]
    assert len(lines) == len(examples)
    for line, prediction, example, (kind, row, first, end) in zip(lines, expected, examples, ANNOTATIONS, strict=True):
        number, question, short, short_score, long, long_score = line.split("\t")
        assert number == str(prediction["example_id"])
        assert question == " ".join(tokenizer.decode(example.question).split())
        assert float(short_score) == pytest.approx(prediction["short_answers_score"], abs=0.006)
        assert float(long_score) == pytest.approx(prediction["long_answer_score"], abs=0.006)
        if kind == SHORT:
            assert short == " ".join(tokenizer.decode(example.document[first:end]).split())
        if kind != 0:
            assert long == " ".join(tokenizer.decode(example.document[slice(*PARAGRAPHS[row])]).split())


@pytest.mark.full
def test_shards_are_the_whole_and_batches_change_nothing(data, checkpoint, predictions, tmp_path, capsys):
    expected, _ = predictions
    shards = [tmp_path / f"{shard}.json.gz" for shard in range(2)]
    for number, shard in enumerate(shards):
        flags = ["--num-shards", 2, "--shard-id", number, "--max-tokens", 40]
        assert predict(data, "--path", checkpoint, "--output", shard, *flags) == 0
        assert f"{shard}: predictions of 3 examples of valid" in capsys.readouterr().err
    for one, other in zip(chain.from_iterable(map(written, shards)), expected, strict=True):
        assert one == {k: pytest.approx(v, abs=1e-3) if k.endswith("_score") else v for k, v in other.items()}


@pytest.mark.full
def test_answers_of_one_token_at_most(data, checkpoint, tmp_path, capsys):
    """The two short answers have one and two tokens."""
    output = tmp_path / "short.json"
    assert predict(data, "--path", checkpoint, "--output", output, "--max-answer-length", 1) == 0
    note = "note: 1 annotated short answers of valid have more than --max-answer-length 1 tokens"
    assert note in capsys.readouterr().err
    for prediction in written(output):
        assert all(span["end_token"] - span["start_token"] == 7 for span in prediction["short_answers"])


@pytest.mark.full
def test_what_cannot_be_predicted_is_refused_in_a_line(data, checkpoint, tmp_path, capsys):
    without_id = copy(data, tmp_path / "copy")
    ids = (without_id / "valid.id.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (without_id / "valid.id.txt").write_text("".join(ids[1:]), encoding="utf-8")
    path, output = ["--path", checkpoint], ["--output", tmp_path / "out.json"]
    for where, flags, message in [
        (without_id, [*path, *output], "6 examples in valid, but 5 example ids; preprocess again"),
        (data, [*path, *output, "--max-positions", 50], "--max-positions 50, but the model takes 40"),
        (data, [*path, *output, "--doc-stride", 39], "doc_stride 39 would skip"),
        (data, [*path, *output, "--max-tokens", 30], "--max-tokens 30 is less than a segment"),
    ]:
        assert predict(where, *flags) == 1
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]

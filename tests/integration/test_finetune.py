"""``poolingformer finetune`` as a user types it, on small data with tiny models, on a CPU."""

import json
import os
import random
import re
import shutil
import signal
import subprocess

import pytest
import torch

from tests.forked_python import PYTHON, start
from tests.lab import ROOT, run

WORDS = [a + b for a in ("ba", "de", "fi", "go", "lu", "ma") for b in ("ban", "del", "fin", "gor", "lus")]
FINETUNE = ("fairseq_poolingformer.cli.main", "finetune")


def text(rng, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files as people have them, one split each: summaries, labels, questions."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    documents = [text(rng, 60 + number) for number in range(30)]
    records = [{"document": document, "summary": document[:30]} for document in documents]
    (folder / "summaries.jsonl").write_text("\n".join(map(json.dumps, records)))
    rows = [f"{text(rng, 30)} {'good' if n % 2 else 'bad'},{'pos' if n % 2 else 'neg'}" for n in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["review,sentiment", *rows]))
    named = [{"tokens": text(rng, 20).split(), "labels": ["B-X", "I-X", "O", "O"] * 5} for _ in range(30)]
    (folder / "names.jsonl").write_text("\n".join(map(json.dumps, named)))
    articles = []
    for number in range(20):
        context = text(rng, 40)
        answer = " ".join(context.split()[10:12])
        answers = [{"text": answer, "answer_start": context.index(answer)}] * (number % 4 > 0)
        question = {"id": f"q{number}", "question": f"what is {number}", "answers": answers}
        articles.append({"title": f"t{number}", "paragraphs": [{"context": context, "qas": [question]}]})
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    return folder


def reviews(data, folder):
    flags = ("--output-folder", folder, "--epochs", 24, "--device-batch", 4, "--ddp-backend", "pytorch_ddp")
    return (*FINETUNE, "poolingformer_roberta_tiny", data / "reviews.csv", *flags)


@pytest.fixture(scope="module")
def classified(data, tmp_path_factory):
    """The folder of a model that tells reviews apart, and what the command printed: it was interrupted, and went on."""
    folder = tmp_path_factory.mktemp("run") / "reviews"
    start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [PYTHON, "-u", "-m", *map(str, reviews(data, folder))]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    printed = []
    for line in process.stdout:
        printed.append(line)
        if "validation: loss" in line:
            break
    process.send_signal(signal.SIGTERM)  # as schedulers do; SIGINT may be ignored where tests run in the background
    printed.append(process.communicate()[0])
    assert process.returncode == 130
    assert not (folder / "scores.json").exists()
    output = run(*reviews(data, folder))
    assert "measuring" not in output
    return folder, "".join([*printed, output])


def parameters(checkpoint):
    return torch.load(checkpoint, weights_only=False)["model"]


def assert_same(first, second):
    ours, theirs = parameters(first), parameters(second)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_labels(classified):
    folder, output = classified
    scores = json.loads((folder / "scores.json").read_text())
    accuracy = scores["figures"]["accuracy"]
    assert scores["split"] == "test"
    assert accuracy["low"] <= accuracy["mean"] <= accuracy["high"]
    assert "no file says valid or test: a hash of the ids takes 10 % as valid and as test" in output
    assert re.search(r"the training takes about \d+ (seconds|minutes), as measured on \d updates", output)
    assert "document_classification (review to sentiment)" in output
    assert "| accuracy | " in (folder / "README.md").read_text()
    assert "labelled_text" not in (folder / "README.md").read_text()
    assert "last_optimizer_state" not in {
        k for k, v in torch.load(folder / "model.pt", weights_only=False).items() if v
    }


@pytest.mark.slow
def test_the_folder_opens_from_anywhere_and_goes_on_with_its_head(classified, tmp_path):
    """Without what it was made with; on a data folder whose test split has no labels, so it is validated on."""
    moved, run_folder = tmp_path / "elsewhere", tmp_path / "run"
    shutil.copytree(classified[0], moved, ignore=shutil.ignore_patterns("training"))
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    import fairseq_poolingformer.huggingface  # noqa: F401

    model = AutoModelForSequenceClassification.from_pretrained(moved)
    assert model.config.id2label == {0: "neg", 1: "pos"}
    assert AutoTokenizer.from_pretrained(moved)("ban")["input_ids"][0] == 0
    data = classified[0] / "training" / "data"
    output = run(*FINETUNE, moved, data, "--output-folder", run_folder, "--updates", 1)
    assert "the model's head for neg, pos is kept" in output
    assert json.loads((run_folder / "scores.json").read_text())["split"] == "valid"
    assert "LABEL_0" not in (run_folder / "config.json").read_text()


@pytest.mark.slow
def test_the_commands_that_it_writes_do_the_same_without_an_interruption(classified, tmp_path):
    folder, output = classified
    lines = (folder / "training" / "commands.sh").read_text()
    places = re.findall(r"\$ (.*) …  \(all of it: line (\d+) of (.*)\)\n", output)
    assert {int(number) for _, number, _ in places} == set(range(2, len(lines.splitlines()) + 1))
    assert {file for _, _, file in places} == {str(folder / "training" / "commands.sh")}
    assert all(lines.splitlines()[int(number) - 1].startswith(name) for name, number, _ in places)
    assert max(map(len, re.sub(re.escape(str(folder)), "", output).splitlines())) < 200
    programs = {"poolingformer": "fairseq_poolingformer.cli.main", "fairseq-train": "fairseq_cli.train"}
    for name, module in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {PYTHON} -m {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    other = tmp_path / "other"
    (other / "training").mkdir(parents=True)
    gold = "training/test.gold.jsonl"  # which the command itself has written
    shutil.copyfile(folder / gold, other / gold)
    lines = lines.replace(str(folder), str(other)).partition("poolingformer convert")[0]
    start()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(["sh", "-c", lines], env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout[-3000:]
    best = "training/checkpoints/checkpoint_best.pt"
    assert_same(folder / best, other / best)
    for name in ("test.predictions", "figures.txt"):
        assert (folder / "training" / name).read_text() == (other / "training" / name).read_text()


@pytest.mark.slow
def test_a_finished_job_is_left_as_it_is_and_another_one_refused(classified, data, tmp_path):
    folder = classified[0]
    output = run(*reviews(data, folder))
    assert "$ " not in output
    assert "accuracy" in output
    refused = run(*reviews(data, folder), "--epochs", 2, status=1)
    assert "was begun with other arguments (epochs was 24, is 2)" in refused
    (tmp_path / "thesis.txt").touch()
    assert "is there, and not of this command" in run(*reviews(data, tmp_path), status=1)


@pytest.mark.slow
def test_summaries(data, tmp_path):
    """By the small model that comes with the package; its folder is what summarize takes."""
    folder = tmp_path / "summarizer"
    flags = ("--output-folder", folder, "--updates", 4, "--beam", 1, "--target-length", 12)
    output = run(*FINETUNE, "demo", data / "summaries.jsonl", *flags)
    scores = json.loads((folder / "scores.json").read_text())
    assert set(scores["figures"]) == {"rouge1", "rouge2", "rougeL", "rougeLsum"}
    assert "fairseq-generate" in output
    assert "3 of 3 summaries" in output
    (tmp_path / "paper.txt").write_text(" ".join(WORDS))
    shutil.rmtree(folder / "training")
    flags = ("--beam", 1, "--max-length", 8, "--device", "cpu")
    assert run("fairseq_poolingformer.cli.summarize", "--checkpoint", folder, tmp_path / "paper.txt", *flags).strip()


@pytest.mark.slow
def test_questions(data, tmp_path):
    folder = tmp_path / "demo_model"
    flags = ("--output-folder", folder, "--updates", 2)
    run(*FINETUNE, "poolingformer_roberta_tiny", data / "squad.json", *flags)
    scores = json.loads((folder / "scores.json").read_text())
    assert {"exact", "f1"} <= set(scores["figures"])
    assert "poolingformer score --task squad" in (folder / "training" / "commands.sh").read_text()
    assert json.loads((folder / "config.json").read_text())["architectures"] == [
        "PoolingformerRobertaForQuestionAnswering"
    ]


@pytest.mark.slow
def test_labels_of_words(data, tmp_path):
    """In documents of several segments, all of which are read."""
    folder = tmp_path / "tagger"
    flags = ("--output-folder", folder, "--updates", 2, "--length", 16)
    output = run(*FINETUNE, "poolingformer_roberta_tiny", data / "names.jsonl", *flags)
    assert "are read in segments, all" in output
    assert "poolingformer score --task token_labels" in (folder / "training" / "commands.sh").read_text()
    assert set(json.loads((folder / "scores.json").read_text())["figures"]) == {"accuracy", "precision", "recall", "f1"}
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["PoolingformerRobertaForTokenClassification"]
    assert config["id2label"] == {"0": "B-X", "1": "I-X", "2": "O"}

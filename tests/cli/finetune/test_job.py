"""``poolingformer finetune`` as a user types it, on small data with tiny models, on a CPU, without fairseq."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from tests.forked_python import PYTHON, start
from tests.lab import ROOT, call

FINETUNE = (
    "import sys; sys.modules['fairseq'] = None; from fairseq_poolingformer.cli.main import main; sys.exit(main())"
)
COMMAND = [PYTHON, "-u", "-c", FINETUNE, "finetune"]


def finetune(*words, status=0):
    return call([*COMMAND, *words, "--use_cpu"], status)


def reviews(files, roberta, folder):
    flags = ("--num_train_epochs", 5, "--keep-short", "--per_device_train_batch_size", 2, "--learning_rate", "1e-3")
    return roberta, files / "reviews.csv", "--output-folder", folder, *flags


@pytest.fixture(scope="module")
def classified(files, roberta, tmp_path_factory):
    """The folder of a model that tells reviews apart, and what was printed: it was interrupted, and went on."""
    folder = tmp_path_factory.mktemp("run") / "reviews"
    start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*COMMAND, *map(str, reviews(files, roberta, folder)), "--use_cpu"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    printed = []
    for line in process.stdout:
        printed.append(line)
        if re.search(r"eval_loss.*'epoch': '2'", line):
            break
    process.send_signal(signal.SIGTERM)  # as schedulers do; SIGINT may be ignored where tests run in the background
    printed.append(process.communicate()[0])
    assert process.returncode == -signal.SIGTERM
    assert not (folder / "scores.json").exists()
    output = finetune(*reviews(files, roberta, folder))
    assert "going on from" in output
    assert "as measured" not in output
    return folder, "".join([*printed, output])


@pytest.mark.slow
def test_labels(classified, files, roberta, tmp_path):
    """And an interruption changes nothing, bit for bit."""
    folder, output = classified
    scores = json.loads((folder / "scores.json").read_text())
    accuracy = scores["systems"]["short"]["figures"]["accuracy"]
    assert scores["split"] == "test"
    assert accuracy["low"] <= accuracy["mean"] <= accuracy["high"]
    assert list(scores["systems"]) == ["short", "most frequent label", "TF-IDF, linear"]
    assert "columns used: review, sentiment" in output
    assert re.search(r"the training takes about \d+ seconds", output)
    card = (folder / "README.md").read_text()
    for text in ("base_model: model", "learning_rate: 0.001", "columns used: review, sentiment", "reads 46", "TF-IDF"):
        assert text in card
    other = tmp_path / "other"
    finetune(*reviews(files, roberta, other))
    last = max((folder / "training/short/checkpoints").iterdir(), key=lambda path: int(path.name.partition("-")[2]))
    for inside in ("test.predictions.jsonl", "model/model.safetensors", f"checkpoints/{last.name}/model.safetensors"):
        assert (last.parents[1] / inside).read_bytes() == (other / "training/short" / inside).read_bytes(), inside


@pytest.mark.slow
def test_the_folder_opens_from_anywhere_and_goes_on_with_its_head(classified, files, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(classified[0], moved, ignore=shutil.ignore_patterns("training"))
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(moved)
    assert model.config.id2label == {0: "neg", 1: "pos"}
    assert AutoTokenizer.from_pretrained(moved).model_max_length == 46
    finetune(moved, files / "reviews.csv", "--output-folder", tmp_path / "run", "--max_steps", 1, "--learning_rate", 0)
    assert torch.equal(
        load_file(tmp_path / "run" / "model.safetensors")["classifier.out_proj.weight"],
        load_file(moved / "model.safetensors")["classifier.out_proj.weight"],
    )


@pytest.mark.slow
def test_a_finished_job_is_left_as_it_is_and_another_one_refused(classified, files, roberta, bart):
    folder = classified[0]
    output = finetune(*reviews(files, roberta, folder))
    assert "accuracy" in output
    assert "epoch" not in output
    words = reviews(files, roberta, folder)
    assert "learning_rate was 0.001, is 0.5" in finetune(*words, "--learning_rate", 0.5, status=1)
    assert f"model was {roberta}, is {bart}; the model has changed" in finetune(bart, *words[1:], status=1)
    before = (files / "reviews.csv").read_text()
    try:
        (files / "reviews.csv").write_text(before + "\nbaban good,pos")
        assert "was begun otherwise (the data has changed)" in finetune(*reviews(files, roberta, folder), status=1)
    finally:
        (files / "reviews.csv").write_text(before)


@pytest.mark.slow
def test_plain_generation_writes_the_summaries_that_were_scored(files, bart, tmp_path):
    """Of the demo model as of a BART that was made long."""
    for model in ("demo", bart):
        folder = tmp_path / model.rpartition("/")[2]
        flags = ("--max_steps", 3, "--generation_num_beams", 2, "--generation_max_length", 9, "--length", 64)
        output = finetune(model, files / "pairs.jsonl", "--output-folder", folder, *flags)
        assert "rougeLsum" in output
        assert "first 4 words" in output
        from fairseq_poolingformer.huggingface import summarize

        found = {
            json.loads(line)["id"]: json.loads(line)["prediction"]
            for line in (folder / "training/long/test.predictions.jsonl").read_text().splitlines()
        }
        rows = [json.loads(line) for line in (files / "pairs.jsonl").read_text().splitlines()]
        texts = [rows[int(name.rpartition(":")[2]) - 1]["document"] for name in found]
        assert [text.strip() for text in summarize(texts, folder)] == list(found.values())


@pytest.mark.slow
def test_systems_in_one_table(files, roberta, tmp_path):
    """Questions, some without an answer, by the model in its own length, one window, and two levels."""
    flags = ("--output-folder", tmp_path / "run", "--max_steps", 2, "--compare", "short,window,long")
    output = finetune(roberta, files / "squad.json", *flags)
    table = output[output.index("test, 2 examples") :].splitlines()
    names = [line.split("  ")[0] for line in table[1:6]]
    assert names == ["short", "window", "long", "never an answer", "TF-IDF, nearest sentence"]
    assert "no answer above a probability of" in output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "no_answer_threshold" in config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["names", "several", "amounts"])
def test_labels_of_words_several_labels_and_amounts(files, roberta, tmp_path, name):
    flags = ("--output-folder", tmp_path / "run", "--max_steps", 2, "--keep-short")
    output = finetune(roberta, files / f"{name}.jsonl", *flags)
    figure = {"names": "recall", "several": "macro_f1", "amounts": "spearman"}[name]
    assert figure in output
    kind = {"names": "RobertaForTokenClassification"}.get(name, "RobertaForSequenceClassification")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["architectures"] == [kind]

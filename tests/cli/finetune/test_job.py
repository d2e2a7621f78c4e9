"""``poolingformer finetune`` as a user types it, on small data with tiny models, on a CPU.

The first jobs and a prediction are processes without fairseq; the others run in this process, which has all libraries.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.job import ByLength, _last_whole, arguments, check_options
from fairseq_poolingformer.cli.finetune.tasks import TASKS
from fairseq_poolingformer.cli.main import main
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.huggingface import summarize
from tests.forked_python import PYTHON, start
from tests.lab import ROOT, call

FINETUNE = (
    "import sys; sys.modules['fairseq'] = None; from fairseq_poolingformer.cli.main import main; sys.exit(main())"
)
COMMAND = [PYTHON, "-u", "-c", FINETUNE, "finetune"]
AT_ONCE = (  # transformers asks for a checkpoint three seconds after a signal, when so small a training is over
    "from transformers.trainer_jit_checkpoint import CheckpointManager as Saving; Saving.__init__.__defaults__ = (0,); "
)


def command(*words, status=0):
    """Output of a command in this process, with one thread, as the other processes have."""
    threads, verbosity, output = torch.get_num_threads(), transformers.logging.get_verbosity(), io.StringIO()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            assert main([*map(str, words)]) == status, output.getvalue()
    finally:
        torch.set_num_threads(threads)
        transformers.logging.set_verbosity(verbosity)
        transformers.utils.logging.enable_progress_bar()
    return output.getvalue()


def finetune(*words, status=0):
    return command("finetune", *words, "--use_cpu", status=status)


def predictions(path):
    return {json.dumps(line) for line in map(json.loads, path.read_text().splitlines())}


def predicts_the_same(folder, data, scratch, predict):
    """Of records without their target, ``predict`` says of those of test what the training said."""
    unknown, output = scratch / data.name, scratch / "predictions.jsonl"
    lines = data.read_text().splitlines()
    if data.suffix == ".csv":
        unknown.write_text("\n".join(line.partition(",")[0] for line in lines))
    else:
        texts = [json.dumps({"document": json.loads(line)["document"]}) for line in lines]
        unknown.write_text("\n".join([*texts, '{"nothing": 0}']))
    output.write_text("")
    said = predict("predict", unknown, "--model", folder, "--output", output, "--max-tokens", 400)
    system = json.loads((folder / "scores.json").read_text())["system"]
    trained, others = map(predictions, (folder / "training" / system / "test.predictions.jsonl", output))
    assert trained < others
    assert f"predictions of {len(others)} records" in said
    assert f"{output}: is replaced" in said
    assert (f"left out: 1 that cannot be used, such as {unknown}, line {len(lines) + 1}: no text" in said) == (
        data.suffix == ".jsonl"
    )
    return said


def reviews(files, roberta, folder):
    flags = ["--num_train_epochs", 5, "--keep-short", "--text-column", "review"]
    flags += ["--per_device_train_batch_size", 2, "--learning_rate", "1e-3"]
    return roberta, files / "reviews.csv", "--output-folder", folder, *flags


@pytest.fixture(scope="module")
def classified(files, roberta, tmp_path_factory):
    """The folder of a model that tells reviews apart, and what was printed: it was interrupted, and went on."""
    folder = tmp_path_factory.mktemp("run") / "reviews"
    start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*COMMAND[:-2], AT_ONCE + FINETUNE, "finetune", *map(str, reviews(files, roberta, folder)), "--use_cpu"]
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
    output = call([*COMMAND, *reviews(files, roberta, folder), "--use_cpu"])
    assert "going on from" in output
    return folder, "".join([*printed, output])


@pytest.mark.full
def test_labels(classified, files, roberta, tmp_path):
    """And an interruption changes nothing, bit for bit."""
    folder, output = classified
    scores = json.loads((folder / "scores.json").read_text())
    accuracy = scores["systems"]["short"]["figures"]["accuracy"]
    assert scores["split"] == "test"
    said = predicts_the_same(folder, files / "reviews.csv", tmp_path, lambda *words: call([*COMMAND[:-1], *words]))
    assert "40 of 40 documents are longer than 46 tokens; their rest is cut off" in said
    assert accuracy["low"] <= accuracy["mean"] <= accuracy["high"]
    assert list(scores["systems"]) == ["short", "most frequent label", "TF-IDF, linear"]
    assert "columns: review to label" in output
    card = (folder / "README.md").read_text()
    sentences = ["# reviews\n", "version of [model] on", "learning_rate: 0.001", "Columns: review to label", "reads 46"]
    assert all(text in card for text in (*sentences, "TF-IDF"))
    other = tmp_path / "other"
    finetune(*reviews(files, roberta, other))
    last = max((folder / "training/short/checkpoints").iterdir(), key=lambda path: int(path.name.partition("-")[2]))
    for inside in ("test.predictions.jsonl", "model/model.safetensors", f"checkpoints/{last.name}/model.safetensors"):
        assert (last.parents[1] / inside).read_bytes() == (other / "training/short" / inside).read_bytes(), inside


@pytest.mark.full
def test_the_folder_opens_from_anywhere_and_goes_on_with_its_head(classified, files, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(classified[0], moved, ignore=shutil.ignore_patterns("training"))
    model = AutoModelForSequenceClassification.from_pretrained(moved)
    assert model.config.id2label == {0: "neg", 1: "pos"}
    assert AutoTokenizer.from_pretrained(moved).model_max_length == 46
    flags = ("--output-folder", tmp_path / "run", "--text-column", "review", "--max_steps", 1, "--learning_rate", 0)
    finetune(moved, files / "reviews.csv", *flags)
    assert torch.equal(
        load_file(tmp_path / "run" / "model.safetensors")["classifier.out_proj.weight"],
        load_file(moved / "model.safetensors")["classifier.out_proj.weight"],
    )


@pytest.mark.full
def test_a_finished_job_is_left_as_it_is_and_another_one_refused(classified, files, roberta, bart):
    folder = classified[0]
    output = finetune(*reviews(files, roberta, folder))
    assert "accuracy" in output
    assert "epoch" not in output
    words = reviews(files, roberta, folder)
    assert "other settings (learning_rate)" in finetune(*words, "--learning_rate", 0.5, status=1)
    assert "other settings (model)" in finetune(bart, *words[1:], status=1)
    before = (files / "reviews.csv").read_text()
    try:
        (files / "reviews.csv").write_text(before + "\nbaban good,pos")
        assert "other settings (the data)" in finetune(*reviews(files, roberta, folder), status=1)
    finally:
        (files / "reviews.csv").write_text(before)


@pytest.mark.full
def test_plain_generation_writes_the_summaries_that_were_scored(files, bart, tmp_path):
    """Of the demo model as of a BART that was made long."""
    for model in ("demo", bart):
        folder = tmp_path / model.rpartition("/")[2]
        flags = ("--max_steps", 3, "--generation_num_beams", 2, "--generation_max_length", 9, "--length", 64)
        output = finetune(model, files / "pairs.jsonl", "--output-folder", folder, *flags)
        assert "rougeLsum" in output
        assert "first 4 words" in output
        entries = [*map(json.loads, (folder / "training/long/test.predictions.jsonl").read_text().splitlines())]
        rows = [*map(json.loads, (files / "pairs.jsonl").read_text().splitlines())]
        texts = [rows[int(entry["id"].rpartition(":")[2]) - 1]["document"] for entry in entries]
        assert [text.strip() for text in summarize(texts, folder)] == [entry["prediction"] for entry in entries]
        predicts_the_same(folder, files / "pairs.jsonl", tmp_path, command)


@pytest.mark.full
def test_two_processes_leave_one_folder_with_each_example_once(files, roberta, tmp_path):
    """As on several GPUs; 3 is odd."""
    rows = (files / "reviews.csv").read_text().splitlines()
    (tmp_path / "data").mkdir()
    for split, part in (("train", rows[1:31]), ("valid", rows[31:34]), ("test", rows[34:41])):
        (tmp_path / "data" / f"{split}.csv").write_text("\n".join([rows[0], *part]))
    words = [*reviews(files, roberta, tmp_path / "run"), "--num_train_epochs", 5]
    command = ("finetune", roberta, tmp_path / "data", *words[2:], "--use_cpu")
    launcher = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", 2]
    output = call([*launcher, "-m", "fairseq_poolingformer.cli.main", *command])
    assert output.count("test, 7 examples") == output.count("has the model, scores.json and a card") == 1
    lines = (tmp_path / "run/training/short/test.predictions.jsonl").read_text().splitlines()
    labels = {entry["id"]: entry["label"] for entry in map(json.loads, lines)}
    assert len(lines) == len(labels) == 7
    right = [row.rpartition(",")[2] for row in rows[34:41]]
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())["systems"]["short"]["figures"]
    assert scores["accuracy"]["mean"] == pytest.approx(100 * np.mean([*map(str.__eq__, labels.values(), right)]))
    checkpoint = max((tmp_path / "run/training/short/checkpoints").iterdir(), key=lambda path: int(path.name[11:]))
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert (state["global_step"], state["epoch"]) == (8 * 5, 5), "30 examples by twos, in 2 processes"
    assert 0.3 < state["log_history"][0]["loss"] < 1, "of 0.69 at first, a mean and not a sum"


@pytest.mark.full
def test_systems_in_one_table(files, roberta, tmp_path):
    """The model in its own length, one window, and two levels."""
    flags = ("--output-folder", tmp_path / "run", "--max_steps", 2, "--compare", "short,window,long")
    output = finetune(roberta, files / "reviews.csv", "--text-column", "review", *flags)
    table = output[output.index("test, 4 examples") :].splitlines()
    names = [line.split("  ")[0] for line in table[1:6]]
    assert names == ["short", "window", "long", "most frequent label", "TF-IDF, linear"]


@pytest.mark.full
def test_the_card_has_the_figures_of_the_kept_model_and_of_test(files, roberta, tmp_path):
    """A learning rate of 30 makes the second epoch worse than the first."""
    flags = ("--keep-short", "--text-column", "review", "--num_train_epochs", 4, "--learning_rate", 30)
    finetune(
        roberta, files / "reviews.csv", "--output-folder", tmp_path / "run", *flags, "--metric_for_best_model=loss"
    )
    result = json.loads((tmp_path / "run" / "scores.json").read_text())["systems"]["short"]
    checkpoints = tmp_path / "run/training/short/checkpoints"
    last = max(checkpoints.iterdir(), key=lambda path: int(path.name.partition("-")[2]))
    losses = [
        entry["eval_loss"] for entry in json.loads((last / "trainer_state.json").read_text())["log_history"][1::2]
    ]
    assert result["best"] == min(losses) < losses[-1]
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"- Loss: {min(losses):.4f}" in card
    assert f"- Test accuracy: {result['figures']['accuracy']['mean']}" in card


@pytest.mark.full
def test_rouge_may_choose_the_checkpoint(files, bart, tmp_path):
    flags = ("--max_steps", 2, "--eval_strategy", "steps", "--eval_steps", 1, "--generation_num_beams", 1)
    finetune(bart, files / "pairs.jsonl", "--output-folder", tmp_path, *flags, "--metric_for_best_model", "rouge2")
    state = json.loads((tmp_path / "training/long/checkpoints/checkpoint-2/trainer_state.json").read_text())
    assert {"eval_loss", "eval_rouge2", "eval_rougeLsum"} <= state["log_history"][0].keys()
    assert state["best_metric"] == max(entry["eval_rouge2"] for entry in state["log_history"] if "eval_rouge2" in entry)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("summarization", {"metric_for_best_model": "bleu"}, "one of loss, rouge1, rouge2, rougeL, rougeLsum"),
        ("classification", {"metric_for_best_model": "rouge2"}, "one of accuracy, macro_f1, loss"),
        ("classification", {"generation_num_beams": 2}, "--generation_num_beams: is for summarization"),
        (
            "classification",
            {"eval_strategy": "epoch", "save_strategy": "steps", "load_best_model_at_end": True},
            "best_mod",
        ),
        ("classification", {"lr_scheduler_type": "steep"}, "steep"),
    ],
)
def test_options_that_a_task_cannot_use(task, options, message):
    with pytest.raises(UsageError, match=message):
        check_options(task, options)
    check_options(task, {"metric_for_best_model": "eval_loss", "learning_rate": 1.0})


def test_the_user_decides_before_the_data_do(files, roberta, tmp_path):
    task = TASKS["classification"](Base("me", roberta, "classification"), 46)
    chosen = arguments({}, task, tmp_path, 3200, 4096)
    rows = chosen["per_device_train_batch_size"]
    assert (rows, rows * chosen["gradient_accumulation_steps"]) == (2, 16)
    assert (chosen["metric_for_best_model"], chosen["greater_is_better"]) == ("accuracy", True)
    assert arguments({}, task, tmp_path, 320, 40)["per_device_train_batch_size"] == 4
    options = {"learning_rate": 1.0, "eval_strategy": "steps", "eval_steps": 7, "per_device_train_batch_size": 3}
    chosen = arguments(options, task, tmp_path, 3200, 40)
    assert options.items() <= chosen.items()
    assert (chosen["save_strategy"], chosen["save_steps"]) == ("steps", 7)
    chosen = arguments({"metric_for_best_model": "loss"}, task, tmp_path, 3200, 40)
    assert (chosen["metric_for_best_model"], chosen["greater_is_better"]) == ("loss", False)
    assert not arguments({"save_strategy": "no"}, task, tmp_path, 320, 40)["load_best_model_at_end"]


def test_the_order_of_an_epoch_follows_from_seed_and_epoch():
    sampler = ByLength(4, lengths=list(range(40)))
    sampler.set_epoch(0)
    order = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == order
    assert sorted(order) == list(range(40))
    sampler.set_epoch(1)
    assert list(sampler) != order
    sampler.seed = 1
    sampler.set_epoch(0)
    assert list(sampler) != order


def test_half_checkpoints_are_removed(tmp_path):
    for step, state in ((3, "{}"), (10, '{"half": '), (20, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert _last_whole(tmp_path) == str(tmp_path / "checkpoint-3")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert _last_whole(tmp_path / "nothing") is None

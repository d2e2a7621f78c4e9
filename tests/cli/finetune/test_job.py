"""``poolingformer finetune`` as a user types it, on small data with tiny models, on a CPU, without fairseq."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.job import ByLength, Stopping, _explained, _last_whole, arguments, expect
from fairseq_poolingformer.cli.finetune.tasks import TASKS
from tests.cli.finetune.conftest import read
from tests.forked_python import PYTHON, start
from tests.lab import ROOT, call

FINETUNE = (
    "import sys; sys.modules['fairseq'] = None; from fairseq_poolingformer.cli.main import main; sys.exit(main())"
)
COMMAND = [PYTHON, "-u", "-c", FINETUNE, "finetune"]


def finetune(*words, status=0):
    return call([*COMMAND, *words, "--use_cpu"], status)


def without(value, *names):
    """A value of JSON without the keys of these names, however deep."""
    if isinstance(value, dict):
        return {key: without(inner, *names) for key, inner in value.items() if key not in names}
    return [without(inner, *names) for inner in value] if isinstance(value, list) else value


def predictions(path):
    """Those of each record; answers are in one object."""
    lines = map(json.loads, path.read_text().splitlines())
    return {json.dumps(one) for line in lines for one in ([line] if "id" in line else line.items())}


def predicts_the_same(folder, data, scratch):
    """Of records without what was learned, ``predict`` says of those of test what the training said."""
    unknown, output = scratch / data.name, scratch / "predictions.jsonl"
    lines = data.read_text().splitlines()
    if data.suffix == ".csv":
        text = "\n".join(line.partition(",")[0] for line in lines)
    else:
        text = "\n".join(
            json.dumps(without(json.loads(line), "labels", "score", "summary", "answers")) for line in lines
        )
    unknown.write_text(text + ('\n{"nothing": 0}' if data.suffix == ".jsonl" else ""))
    said = call([*COMMAND[:-1], "predict", unknown, "--model", folder, "--output", output, "--max-tokens", 400])
    system = json.loads((folder / "scores.json").read_text())["system"]
    trained, found = map(predictions, (folder / "training" / system / "test.predictions.jsonl", output))
    assert trained < found
    assert f"predictions of {len(found)} records" in said
    assert (f"left out: 1 that cannot be used, such as {unknown}, line {len(lines) + 1}: no " in said) == (
        data.suffix == ".jsonl"
    )


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


@pytest.mark.full
def test_labels(classified, files, roberta, tmp_path):
    """And an interruption changes nothing, bit for bit."""
    folder, output = classified
    scores = json.loads((folder / "scores.json").read_text())
    accuracy = scores["systems"]["short"]["figures"]["accuracy"]
    assert scores["split"] == "test"
    predicts_the_same(folder, files / "reviews.csv", tmp_path)
    assert accuracy["low"] <= accuracy["mean"] <= accuracy["high"]
    assert list(scores["systems"]) == ["short", "most frequent label", "TF-IDF, linear"]
    assert "columns used: review, sentiment" in output
    assert re.search(r"the training takes about \d+ seconds", output)
    card = (folder / "README.md").read_text()
    for text in (
        "# reviews\n",
        "version of [model] on",
        "learning_rate: 0.001",
        "columns used: review, sentiment",
        "reads 46",
        "TF-IDF",
    ):
        assert text in card
    other = tmp_path / "other"
    finetune(*reviews(files, roberta, other))
    last = max((folder / "training/short/checkpoints").iterdir(), key=lambda path: int(path.name.partition("-")[2]))
    for inside in ("test.predictions.jsonl", "model/model.safetensors", f"checkpoints/{last.name}/model.safetensors"):
        assert (last.parents[1] / inside).read_bytes() == (other / "training/short" / inside).read_bytes(), inside


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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
        predicts_the_same(folder, files / "pairs.jsonl", tmp_path)


@pytest.mark.full
def test_two_processes_leave_one_folder_with_each_example_once(files, roberta, tmp_path):
    """As on several GPUs; 3 is odd."""
    rows = (files / "reviews.csv").read_text().splitlines()
    (tmp_path / "data").mkdir()
    for split, part in (("train", rows[1:31]), ("valid", rows[31:34]), ("test", rows[34:41])):
        (tmp_path / "data" / f"{split}.csv").write_text("\n".join([rows[0], *part]))
    words = reviews(files, roberta, tmp_path / "run")
    module = ("-m", "fairseq_poolingformer.cli.finetune.command", roberta, tmp_path / "data", *words[2:], "--use_cpu")
    output = call([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, *module])
    assert output.count("test, 7 examples") == output.count("has the model, scores.json and a card") == 1
    lines = (tmp_path / "run/training/short/test.predictions.jsonl").read_text().splitlines()
    found = {one["id"]: one["label"] for one in map(json.loads, lines)}
    assert len(lines) == len(found) == 7
    right = [row.rpartition(",")[2] for row in rows[34:41]]
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())["systems"]["short"]["figures"]
    assert scores["accuracy"]["mean"] == pytest.approx(100 * np.mean([*map(str.__eq__, found.values(), right)]))
    checkpoint = max((tmp_path / "run/training/short/checkpoints").iterdir(), key=lambda path: int(path.name[11:]))
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert (state["global_step"], state["epoch"]) == (8 * 5, 5), "30 examples by twos, in 2 processes"
    assert 0.3 < state["log_history"][0]["loss"] < 1, "of 0.69 at first, a mean and not a sum"
    before = len({*(tmp_path / "run").iterdir()})
    assert before == len(json.loads((tmp_path / "run" / "scores.json").read_text())["files"]) + 2


@pytest.mark.full
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
    predicts_the_same(tmp_path / "run", files / "squad.json", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", ["several", "amounts"])
def test_several_labels_and_amounts(files, roberta, tmp_path, name):
    flags = ("--output-folder", tmp_path / "run", "--max_steps", 2, "--keep-short")
    output = finetune(roberta, files / f"{name}.jsonl", *flags)
    figure = {"several": "macro_f1", "amounts": "spearman"}[name]
    assert figure in output
    architectures = json.loads((tmp_path / "run" / "config.json").read_text())["architectures"]
    assert architectures == ["RobertaForSequenceClassification"]
    predicts_the_same(tmp_path / "run", files / f"{name}.jsonl", tmp_path)


def test_the_user_decides_before_the_data_do(files, roberta, tmp_path):
    task = TASKS["classification"](read(files / "reviews.csv"), Base("me", roberta, "classification"), 46)
    chosen = arguments({}, task, tmp_path, 3200, 4096)
    rows = chosen["per_device_train_batch_size"]
    assert (rows, rows * chosen["gradient_accumulation_steps"]) == (2, 16)
    assert (chosen["metric_for_best_model"], chosen["greater_is_better"]) == ("accuracy", True)
    assert arguments({}, task, tmp_path, 320, 40)["per_device_train_batch_size"] == 4
    given = {"learning_rate": 1.0, "eval_strategy": "steps", "eval_steps": 7, "per_device_train_batch_size": 3}
    chosen = arguments(given, task, tmp_path, 3200, 40)
    assert given.items() <= chosen.items()
    assert (chosen["save_strategy"], chosen["save_steps"]) == ("steps", 7)
    assert not arguments({"save_strategy": "no"}, task, tmp_path, 320, 40)["load_best_model_at_end"]


def test_the_order_of_an_epoch_follows_from_seed_and_epoch():
    sampler = ByLength(4, lengths=list(range(40)))
    sampler.set_epoch(0)
    first = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert sorted(first) == list(range(40))
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.seed = 1
    sampler.set_epoch(0)
    assert list(sampler) != first


def test_half_checkpoints_are_removed(tmp_path):
    for step, state in ((3, "{}"), (10, '{"half": '), (20, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert _last_whole(tmp_path) == str(tmp_path / "checkpoint-3")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert _last_whole(tmp_path / "nothing") is None


@pytest.mark.parametrize(("epoch", "saves"), [(1.5, True), (2.0, False)])
def test_a_signal_ends_a_training_with_a_checkpoint_and_a_second_one_at_once(epoch, saves, capsys):
    """At the end of an epoch Trainer evaluates before it saves."""
    stopping, args = Stopping(), SimpleNamespace(world_size=1)
    state, control = SimpleNamespace(epoch=epoch), SimpleNamespace(should_save=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which may be ignored where tests run
    try:
        stopping.on_train_begin(args, state, control)
        stopping.on_step_end(args, state, control)
        stopping.on_save(args, state, control)
        assert not control.should_save
        os.kill(os.getpid(), signal.SIGINT)
        assert "with a checkpoint" in capsys.readouterr().out
        stopping.on_step_end(args, state, control)
        assert control.should_save == saves
        with pytest.raises(KeyboardInterrupt):
            stopping.on_save(args, state, control)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_memory_does_not_hold_halves_the_batch(files, roberta):
    task = TASKS["classification"](read(files / "reviews.csv"), Base("me", roberta, "classification"), 46)
    model = task.start("short", {})
    train, small = task.features(task.data.splits["train"]), model.forward

    def forward(input_ids, **inputs):
        if len(input_ids) > most:
            raise torch.OutOfMemoryError
        return small(input_ids, **inputs)

    model.forward, most = forward, 2
    chosen = {"use_cpu": True, "num_train_epochs": 1, "gradient_accumulation_steps": 1}
    chosen |= {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8}
    assert expect(task, model, train, chosen) > 0
    assert (chosen["per_device_train_batch_size"], chosen["gradient_accumulation_steps"]) == (2, 4)
    most = 0
    with (
        pytest.raises(ValueError, match=r"no memory for 46 tokens; give .*a smaller --length, with another --output-f"),
        _explained(task, files),
    ):
        expect(task, model, train, chosen)

"""The run scripts: what they would run at full size, and that they run, at tiny size and on a CPU."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import setuptools
import torch

from fairseq_poolingformer.checkpoints import load
from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, module, options
from tests.lab import ROOT, SCRIPTS, call, run_script
from tests.samples import write_summaries
from tests.tasks.question_answering.folders import Example, write_folder


def commands(experiment: str, *arguments: object, **environment: str) -> list[list[str]]:
    """The commands of a dry run, each as its words."""
    script, first = f"summarization/{experiment}.sh", []
    if not (SCRIPTS / script).exists():
        script, first = "summarization/run.sh", [f"experiments={experiment}"]
    return dry_run(script, *first, *arguments, **environment)


@pytest.mark.parametrize(
    ("experiment", "devices", "batch", "update_freq"),
    [
        ("arxiv_4k", ["gpus=8"], 4, 4),
        ("arxiv_4k", ["gpus=1"], 4, 32),
        ("arxiv_4k", ["gpus=8", "nodes=2", "rendezvous=a:1"], 4, 2),
        ("arxiv_4k", ["gpus=4", "device_batch=2"], 2, 16),
        ("arxiv_4k", ["gpus=8", "nodes=8", "rendezvous=a:1", "device_batch=auto"], 2, 1),
        ("arxiv_4k", ["gpus=8", "device_batch=5"], 4, 4),
        ("arxiv_16k", ["gpus=8"], 1, 16),
    ],
)
def test_an_update_has_128_documents_on_any_number_of_devices(experiment, devices, batch, update_freq):
    (train,) = commands(experiment, "steps=train", *devices)
    assert options(train)["--batch-size"] == str(batch)
    assert options(train)["--update-freq"] == str(update_freq)


def test_how_processes_are_started():
    (single,) = commands("arxiv_4k", "steps=train", "gpus=1")
    assert single[:3] == [PYTHON, "-m", "fairseq_cli.train"]
    assert options(single)["--distributed-world-size"] == "1"
    (one_node,) = commands("arxiv_4k", "steps=train", "gpus=4")
    assert one_node[:4] == [str(SCRIPTS / "pass_on.sh"), PYTHON, "-m", "torch.distributed.run"]
    assert options(one_node)["--nproc_per_node"] == "4"
    assert "--standalone" in one_node
    (on_cpu,) = commands("arxiv_4k", "steps=train", "gpus=0", "--", "--log-interval", 7)
    assert "--cpu" in on_cpu
    assert "--fp16" not in on_cpu
    assert on_cpu[-4:-2] == ["--log-interval", "7"], "after the script's own, which they override"


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("summarization/arxiv_4k", ["gpus=3"], "batch=128 cannot be divided among 3 processes"),
        ("summarization/arxiv_4k", ["lrr=1"], "no option lrr="),
        ("summarization/arxiv_4k", ["steps=train,test"], "steps= must be"),
        ("summarization/arxiv_4k", ["experiments=foo"], "foo is not in"),
        ("summarization/arxiv_4k", ["nodes=2", "gpus=1"], "needs rendezvous="),
        ("summarization/arxiv_4k", ["warmup=many"], "warmup= must be a whole number"),
        ("summarization/arxiv_4k", ["lr=fast"], "lr= must be a number"),
        ("summarization/arxiv_4k", ["dry_run=yes"], "dry_run= must be 0 or 1"),
        ("summarization/arxiv_4k", ["dry_run=0"], "give raw="),
        ("summarization/arxiv_4k", ["best=rouge3", "gpus=1"], "best= must be loss, rouge1"),
        ("char_lm/longformer", ["gpus=0", "batch=32"], "batch=32 must have a value for each of 5 stages"),
        ("char_lm/longformer", ["gpus=0", "schedule=cosine"], "schedule=cosine is for one stage"),
        ("char_lm/longformer", ["gpus=32", "device_batch=1,1,1,1,1"], "batch=16 cannot be divided among 32 processes"),
        ("question_answering/nq", ["vocabulary=99"], "vocabulary=99 has no pretrained weights: give pretrained=- too"),
    ],
)
def test_mistakes_are_explained(script, arguments, message, tmp_path):
    assert message in run_script(f"{script}.sh", "dry_run=1", f"out={tmp_path}", *arguments, status=1)


def answering(experiment: str, *arguments: object) -> dict[str, list[str]]:
    """The commands of a dry run of question answering on eight GPUs by their names, each as its words."""
    commands = dry_run("question_answering/run.sh", f"experiments={experiment}", "gpus=8", *arguments)
    return {module(words): words for words in commands}


@pytest.mark.parametrize(("partial_segments", "count"), [("skip", 1), ("negative", 6)])
def test_segments_that_see_a_part_are_trained_on_where_that_is_wanted(tmp_path, partial_segments, count):
    """Five of six segments see a part of an answer that fits in none; the updates are counted with or without them."""
    flags = options(answering("nq_large", "steps=train", f"partial_segments={partial_segments}")["train"])
    assert flags["--partial-segments"] == partial_segments
    write_folder(tmp_path, {"train": [Example([5], [6] * 30, [(0, 2), (2, 20)], [(1, 1, 3, 15)])]})
    sizes = ["--max-positions", "15", "--doc-stride", "4", "--max-question-length", "6", "--negative-share", "1"]
    counter = "question_answering/count_segments.py"
    assert int(run_script(counter, tmp_path, *sizes, "--partial-segments", partial_segments)) == count


def test_an_ensemble_predicts_with_all_members_into_a_folder_of_its_own():
    output = call_dry("experiments=nq_ensemble", "gpus=0")
    members = ["nq_large", "nq_large_lr1", "nq_large_lr3"]
    predict, score = (
        shlex.split(line) for line in output.splitlines() if "cli.main predict " in line or "cli.main score " in line
    )
    assert options(predict)["--path"].split(":") == [f"/out/{name}/checkpoints/checkpoint_best.pt" for name in members]
    assert options(predict)["--output"] == "/out/nq_ensemble/predictions.0.json"
    assert score[4] == "/out/nq_ensemble/predictions.*.json"
    assert options(score)["--json"] == "/out/nq_ensemble/scores.json"
    assert "nothing to train: nq_ensemble averages nq_large,nq_large_lr1,nq_large_lr3" in output
    assert output.splitlines()[-1].split()[-6:] == ["78.5", "81.2", "79.8", "70.4", "54.8", "61.6"]


def test_every_shard_is_printed_for_pasting():
    """The commands of a dry run on three GPUs, in the shell: each writes its own file, and the last line waits."""
    lines = call_dry("experiments=nq_large", "gpus=3", "steps=predict").splitlines()
    shards = [line for line in lines if "--shard-id" in line]
    for number, line in enumerate(shards):
        words = shlex.split(line)
        assert words[:2] == ["env", f"CUDA_VISIBLE_DEVICES={number}"]
        assert options(words)["--shard-id"] == str(number)
        assert words[-3:] == [">", f"/out/nq_large/predict.{number}.out", "&"]
    assert len(shards) == 3
    assert lines[lines.index(shards[-1]) + 1] == "wait"


def test_a_converted_models_sentencepiece_model_is_found(tmp_path):
    """poolingformer convert puts it into tokenizer/, fairseq's release beside model.pt."""
    for folder, file in (("fairseq", "sentencepiece.bpe.model"), ("converted", "tokenizer/sentencepiece.model")):
        (tmp_path / folder / file).parent.mkdir(parents=True)
        (tmp_path / folder / file).touch()
        words = answering("tydi_large", "steps=preprocess", f"pretrained={tmp_path}/{folder}")["preprocess"]
        assert options(words)["--sentencepiece-model"] == f"{tmp_path}/{folder}/{file}"


def test_a_vocabulary_of_its_own_is_for_models_from_scratch():
    words = answering("nq_large", "steps=preprocess", "vocabulary=99", "pretrained=-")["preprocess"]
    assert (options(words)["--sentencepiece-train"], options(words)["--html-tokens"]) == ("99", "drop")


def test_an_ensemble_never_overwrites_a_member(tmp_path):
    """Not even one that is not named among the members."""
    files = [tmp_path / "a" / name for name in ("predictions.0.json", "scores.json")]
    for name in ("a", "b", "c"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "checkpoints" / "checkpoint_best.pt").touch()
    for file in files:
        file.write_text("a's")
    steps = ["experiments=nq_large", "steps=predict,score", f"out={tmp_path}", "gpus=0", f"python={PYTHON}"]
    for members in ("b", "a,b", "b,c"):
        output = run_script("question_answering/run.sh", *steps, "name=a", f"ensemble={members}", status=1)
        assert "name=a is a trained model" in output
    assert "needs a name" in run_script("question_answering/run.sh", *steps, "ensemble=b,c", status=1)
    output = run_script("question_answering/run.sh", *steps, "name=nq_large_lr1", "ensemble=b,c", status=1)
    assert "name=nq_large_lr1 is an experiment of" in output  # which may be trained later
    assert [file.read_text() for file in files] == ["a's"] * 2


def call_dry(*arguments: object) -> str:
    """The output of a dry run, each command on one line."""
    arguments = [f"python={PYTHON}", "out=/out", "dry_run=1", *arguments]
    return run_script("question_answering/run.sh", *arguments).replace("\\\n", " ")


def test_hotpotqa_trains_a_second_stage_on_the_paragraphs_that_the_first_one_keeps():
    steps: dict[str, list[list[str]]] = {}
    for words in dry_run("longformer_tasks/run.sh", "experiments=hotpotqa", "gpus=8", "best=loss"):
        steps.setdefault(module(words), []).append(words)
    first, second = steps["train"]
    folder = "/out/hotpotqa"
    assert ("/out/data/hotpotqa" in first, f"{folder}/second_stage" in second) == (True, True)
    assert options(first)["--save-dir"] == f"{folder}/first_stage/checkpoints"
    assert options(second)["--save-dir"] == f"{folder}/checkpoints"
    scores = [f"{folder}/first_stage/{split}.json" for split in ("train", "valid")]
    *first_stage, last = map(options, steps["predict"])
    assert [step["--output"] for step in first_stage] == scores
    assert [step["--subset"] for step in first_stage] == ["train", "valid"]
    assert {step["--path"] for step in first_stage} == {f"{folder}/first_stage/checkpoints/checkpoint_best.pt"}
    assert last["--path"] == f"{folder}/checkpoints/checkpoint_best.pt"
    assert f"{folder}/second_stage" in steps["predict"][-1]
    _, words = steps["preprocess"]
    place = words.index("--paragraph-scores")
    assert words[place + 1 : place + 3] == scores
    assert options(words)["--output-folder"] == f"{folder}/second_stage"
    assert "--train" in words


def test_epochs_become_updates():
    """900,000 blocks in batches of 128."""
    (train,) = dry_run("pretraining/run.sh", "experiments=thesis_large", "gpus=8", "steps=train")
    assert options(train)["--total-num-update"] == str(4 * -(-900_000 // 128))


@pytest.fixture
def corpus_to_preprocess(tmp_path):
    """Arguments with which a script calls the program ``tmp_path / "python"`` for its first step, and no other."""
    (tmp_path / "vocab.bpe").touch()
    return ["steps=preprocess,train", f"out={tmp_path}", f"raw={tmp_path}", f"bpe={tmp_path}", "gpus=0"]


def program(path: Path, text: str) -> str:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return f"python={path}"


def test_all_rows_are_checked_before_the_first_is_trained(tmp_path):
    rows = "experiments=gaa_enwik8,transformer_enwik8"
    output = run_script("char_lm/run.sh", rows, "gpus=8", "dry_run=1", f"out={tmp_path}", status=1)
    assert output.splitlines() == [
        "run.sh: batch=22 cannot be divided among 8 processes: choose another batch=, or gpus= and nodes=, that can"
    ]
    assert "eval-lm" in run_script("char_lm/run.sh", rows, "steps=evaluate", "gpus=8", "dry_run=1", f"out={tmp_path}")


def test_a_pasted_dry_run_writes_where_out_says(tmp_path):
    """Also where the folder's name has what shells and patterns read as something else."""
    out = tmp_path / "o[u]t 1%0 $(touch ran)"
    (out / "arxiv_4k").mkdir(parents=True)
    python = program(tmp_path / "python", 'printf "%s\\n" "$@"\n')
    steps = ("steps=generate", "gpus=0", "cpus=2", "dry_run=1", f"out={out}", python)
    output = run_script("summarization/arxiv_4k.sh", *steps)
    subprocess.run(["bash", "-c", output.partition("# ROUGE of")[0]], cwd=tmp_path, check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([out.name, "python"])
    files = sorted((out / "arxiv_4k").iterdir())
    assert [path.name for path in files] == ["generate.0.out", "generate.1.out"]
    for path in files:
        assert f"--path\n{out}/arxiv_4k/checkpoints/checkpoint_best.pt\n" in path.read_text()


def test_a_step_that_fails_ends_the_script_with_its_status(corpus_to_preprocess, tmp_path):
    python = program(tmp_path / "python", "exit 7\n")
    output = run_script("summarization/arxiv_4k.sh", *corpus_to_preprocess, python, status=7)
    assert "arxiv_4k: train" not in output


@pytest.mark.parametrize("highest", ["checkpoint_1_2", "checkpoint_best"])
def test_the_best_checkpoint_is_that_of_the_highest_figure(tmp_path, highest):
    """A program that predicts by its checkpoint's name, and scores 60 where that is the best one's."""
    checkpoints = tmp_path / "triviaqa" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("checkpoint_best", "checkpoint_last", "checkpoint_1_2", "checkpoint_1_4"):
        (checkpoints / f"{name}.pt").write_text(name)
    (tmp_path / "data" / "triviaqa").mkdir(parents=True)
    (tmp_path / "data" / "triviaqa" / "corpus.json").write_text('{"examples": {"valid": 1200}}')
    python = program(tmp_path / "python", f"""
    [[ $1 == -m ]] || exec {PYTHON} "$@"
    [[ "$*" == *" score "* ]] || exit 0
    if [[ "$*" == */{highest}.json ]]; then echo '{{"f1": 60}}'; else echo '{{"f1": 50}}'; fi >"${{@: -1}}"
    """)  # fmt: skip
    output = run_script("longformer_tasks/run.sh", "experiments=triviaqa", "steps=choose", f"out={tmp_path}", python)
    assert (checkpoints / "checkpoint_best.pt").read_text() == highest
    assert output.count("--num-shards 3") == 4
    assert output.count("--predicted-only") == 4


def test_two_rows_train_in_turns_within_a_budget(tmp_path):
    """A program that logs a validation for a training, or waits where ``wait`` is there."""
    write_summaries(tmp_path / "raw" / "arxiv")
    python = program(tmp_path / "python", f"""
    [[ $1 == -m ]] || exec {PYTHON} "$@"
    if [[ $2 != fairseq_cli.train ]]; then
      mkdir -p {tmp_path}/windows/data && echo '{{"examples": {{"train": 16}}}}' >{tmp_path}/windows/data/corpus.json
      exit
    fi
    trap 'exit 75' USR1
    while [[ -e {tmp_path}/wait ]]; do sleep 0.1; done
    while [[ $1 != --log-file ]]; do shift; done
    log=$2
    while [[ $1 != --max-update ]]; do shift; done
    echo '{{"valid_loss": "3", "valid_rouge1": "9", "valid_num_updates": "'$2'"}}' >>"$log"
    """)  # fmt: skip
    settings = (f"out={tmp_path}", python, "slice=2", "sample=3")
    of_run = ("--", "bart=-", "vocabulary=99", "gpus=0")
    output = run_script("summarization/windows.sh", *settings, "updates=3", *of_run)
    turns = re.findall(r"^# (\w+): train\n[^#]*--max-update (\d)", output.replace("\\\n", ""), re.MULTILINE)
    assert turns == [("base_w128", "2"), ("base_w128_p512", "2"), ("base_w128", "3"), ("base_w128_p512", "3")]
    assert [line.split() for line in output.splitlines()[-2:]] == [[n, *(["3", "9", "-", "-"] * 2)] for n in "23"]
    assert len((tmp_path / "windows" / "raw" / "val.txt").read_text().splitlines()) == 3
    assert ": train" not in run_script("summarization/windows.sh", *settings, "updates=3", *of_run)
    (tmp_path / "wait").touch()
    output = run_script("summarization/windows.sh", *settings, "updates=4", "minutes=0.05", *of_run, status=75)
    assert output.splitlines()[-1] == "# the 0.05 minutes are over; the same command continues"


def runs(process: str) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_signal_to_a_script_ends_everything_that_it_has_started(corpus_to_preprocess, tmp_path):
    python = program(tmp_path / "python", f'sleep 600 &\necho "$! $$" > {tmp_path}/new\n'
                     f"mv {tmp_path}/new {tmp_path}/started\nwait\n")  # fmt: skip
    command = ["bash", SCRIPTS / "summarization" / "arxiv_4k.sh", *corpus_to_preprocess, python]
    script = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    script.terminate()
    _, errors = script.communicate(timeout=1200)
    assert script.returncode == 128 + signal.SIGTERM
    assert "ending what was started" in errors
    for number in (tmp_path / "started").read_text().split():
        while runs(number):
            assert time.monotonic() < deadline
            time.sleep(0.05)


SOURCED = {"lib.sh", "experiments.sh"}


@pytest.mark.parametrize("script", sorted({str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.sh")} - SOURCED))
def test_help_names_every_option(script):
    output = run_script(script, "--help")
    defined = re.findall(r'^  "(\w+)=.*" # ', (SCRIPTS / script).read_text(), re.MULTILINE)
    assert [name for name in defined if f"\n  {name}=" not in output] == []
    assert f"run_scripts/{script}" in output or "run.sh" in output
    assert "shellcheck" not in output


TINY = ["gpus=0", "num_workers=0", "perl=0", "preprocess_workers=1"]


@pytest.fixture(scope="session")
def bart(tmp_path_factory) -> Path:
    """A folder as bart.large has it, of a tiny model: model.pt, with a row for <mask>, and GPT-2 BPE files."""
    from fairseq.models.bart import BARTModel

    from fairseq_poolingformer.weights.files import write_checkpoint
    from tests.models.tiny_bart import build, parse
    from tests.text.tiny_gpt2 import write_vocabulary

    folder = write_vocabulary(tmp_path_factory.mktemp("bart"))
    dictionaries = tmp_path_factory.mktemp("dictionaries")
    for side in ("source", "target"):
        (dictionaries / f"dict.{side}.txt").write_bytes((folder / "dict.txt").read_bytes())
    task, _ = build(dictionaries)
    settings = parse(dictionaries, "--max-source-positions", "30")
    state = BARTModel.build_model(settings, task).state_dict()
    for name in state:
        if name.endswith(("embed_tokens.weight", "output_projection.weight")):
            state[name] = torch.cat([state[name], state[name][-1:]])
    write_checkpoint(folder / "model.pt", vars(argparse.Namespace(arch="bart_large")), state)
    return folder


@pytest.mark.full
def test_two_processes_are_one_training_that_resumes_and_share_generation(bart, tmp_path):
    write_summaries(tmp_path / "raw")
    arguments = [f"python={PYTHON}", f"out={tmp_path}", f"raw={tmp_path}/raw", f"bart={bart}", f"bpe={bart}", *TINY]
    arguments += ["cpus=2", "device_batch=2", "batch=8", "input=30", "target=12", "tiny=1"]
    # one update, so that there is something left to do
    output = run_script("summarization/arxiv_4k.sh", *arguments, "steps=preprocess,train", "--", "--max-update", 1)
    assert "process 1 of 2" in output
    assert "--update-freq 2" in output
    assert "loading pretrained model from" in output
    output = run_script("summarization/arxiv_4k.sh", *arguments, "best=rouge1", "steps=train")
    assert "loading pretrained model from" not in output
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d @ 1 updates\)", output)
    assert '_num_updates": "2"' in output
    assert "valid_rouge1" in output
    assert "The best one by loss is checkpoint_best_loss.pt now" in output
    output = run_script("summarization/arxiv_4k.sh", *arguments, "steps=generate,score", "gen_batch=2")
    folder = tmp_path / "tiny" / "arxiv_4k"
    numbers = [re.findall(r"^D-(\d+)", (folder / f"generate.{k}.out").read_text(), re.MULTILINE) for k in range(2)]
    assert [len(shard) for shard in numbers] == [3, 2]
    assert sorted(numbers[0] + numbers[1]) == list("01234")
    assert output.count("ROUGE of 5 examples") == 1
    assert len((folder / "hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 5


# one of each script, the ways to a checkpoint (of the loss, of a figure in training, of a predicted sample), the fusion
TINY_ROWS = (
    *("summarization/led_4k", "question_answering/tydi_large", "pretraining/frozen_base"),
    *("longformer_tasks/hyperpartisan", "longformer_tasks/hotpotqa", "char_lm/longformer_enwik8"),
    "question_answering/nq_fusion",
)


@pytest.mark.full
def test_rows_run_tiny_from_raw_samples_to_their_figures(tmp_path):
    arguments = [f"python={PYTHON}", f"out={tmp_path}", f"rows={','.join(TINY_ROWS)}"]
    lines = run_script("all_tiny.sh", *arguments).splitlines()[-len(TINY_ROWS) :]
    assert ["/".join(line.split()[:2]) for line in lines] == list(TINY_ROWS)
    assert all(re.search(r" (test|valid) .*\d\.\d", line) for line in lines)
    seeds = [tmp_path / "tiny" / "hyperpartisan" / f"seed{seed}" / "scores.json" for seed in (1, 2)]
    f1 = [json.loads(path.read_text())["f1_true"] for path in seeds]
    assert f" {statistics.mean(f1):.2f} ± {statistics.stdev(f1):.2f} (2) " in lines[3]
    stages = [tmp_path / "tiny" / "longformer_enwik8" / f"stage{k}" / "checkpoints" for k in (1, 2)]
    for folder, updates, lr, scale in zip(stages, (4, 8), (2.5e-4, 1.25e-4), (1, 2), strict=True):
        checkpoint = load(folder / "checkpoint_last.pt")
        assert checkpoint["cfg"]["model"].window_scale == scale
        assert checkpoint["optimizer_history"][-1]["num_updates"] == updates
        optimizer = checkpoint["last_optimizer_state"]
        assert {int(state["step"]) for state in optimizer["state"].values()} == {updates}
        assert optimizer["param_groups"][0]["lr"] == pytest.approx(lr)
    # an ensemble of a model and itself
    tiny = [f"python={PYTHON}", f"out={tmp_path}", "tiny=1", "gpus=0", "min_annotations=1", "name=twice"]
    tiny += ["experiments=tydi_large", "ensemble=tydi_large,tydi_large", "steps=predict,score"]
    last = run_script("question_answering/run.sh", *tiny).splitlines()[-1]
    assert last.split()[:2] == ["twice,", "valid"]
    files = [tmp_path / "tiny" / name / "predictions.0.json" for name in ("tydi_large", "twice")]
    one, twice = ([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files)
    for name in ("example_id", "passage_answer_score", "minimal_answer_score"):
        assert [line[name] for line in twice] == pytest.approx([line[name] for line in one], abs=1e-4)


@pytest.mark.full
def test_quickstart(data_folder, tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(PYTHON)
    arguments = [f"venv={tmp_path / 'venv'}", "install=0", f"out={tmp_path}", "examples=3"]
    tiny = ["documents=8", "words=10,20", "max_tokens=1024", "updates=2", "beam=1", "summary_length=8"]
    output = run_script("quickstart.sh", *arguments, *tiny)
    assert [line for line in output.splitlines() if line.startswith("[6/6]")]
    assert output.count("  reference ") == 3
    runs = ["one_softmax_1", "equal_keys_1"]
    results = output[output.index("[5/6]") : output.index("[6/6]")]
    assert max(map(len, results.splitlines())) <= 80
    assert re.search(r"^one_softmax( +\d+\.\d\d){4}$", results, re.MULTILINE)
    assert re.search(r"^points ahead of equal_keys\n  one_softmax +[+-]\d+\.\d ", results, re.MULTILINE)
    assert re.search(r"^equal_keys( +\d+){5}$", results, re.MULTILINE)
    assert output.count("seed 1: 3 of 3 summaries\n") == 2, "the progress of the summaries"
    assert "--pool-type ldconv --pool-merge softmax" in output
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    logs = [(tmp_path / name / "train.out").read_text() for name in runs]
    assert [", pool_merge=softmax" in log for log in logs] == [True, False]
    if len(os.sched_getaffinity(0)) > 1:
        begun, ended = tmp_path / "equal_keys_1" / "settings", tmp_path / "one_softmax_1" / "trained"
        assert begun.stat().st_mtime_ns < ended.stat().st_mtime_ns, "trainings side by side"
    outputs = [tmp_path / name / file for name in runs for file in ("checkpoints/checkpoint_last.pt", "summaries.txt")]
    trained = [path.stat().st_mtime_ns for path in outputs]
    again = run_script("quickstart.sh", *arguments, *tiny, f"data={tmp_path / 'corpus_1'}")
    assert again.count("done by an earlier run") == 2
    assert [path.stat().st_mtime_ns for path in outputs] == trained
    refused = run_script("quickstart.sh", *arguments, f"data={data_folder}", status=1)
    assert "another vocabulary than the demo model" in refused


def closing_commands(output: str, folder: Path) -> list[str]:
    """Writes papers.jsonl of records as the quickstart shows one, and a paper; returns the commands that it names."""
    lines = [line.strip() for line in output.split("a line each:")[1].splitlines()]
    record = json.loads(next(line for line in lines if line.startswith("{")))
    records = [record | {"document": f"{record['document']} {number}."} for number in range(40)]
    (folder / "papers.jsonl").write_text("\n".join(map(json.dumps, records)))
    (folder / "paper.txt").write_text(record["document"])
    assert any(line.endswith("bin/activate") for line in lines)
    return lines[next(n for n, line in enumerate(lines) if line.startswith("poolingformer preprocess")) :]


@pytest.mark.full
def test_the_commands_that_the_quickstart_ends_with(tmp_path):
    """A run that does no work but writing the demo model's checkpoint."""
    script = (SCRIPTS / "quickstart.sh").read_text()
    (tmp_path / "end.sh").write_text(
        script[: script.index("announce 2")].replace('"$(dirname "${BASH_SOURCE[0]}")/lib.sh"', f"{SCRIPTS}/lib.sh")
        + '"$python" -m fairseq_poolingformer.models.demo_model "$out/demo_model.pt"\n'
        + script[script.index('read_system "${all_systems[0]}"') :]
    )
    output = call(["bash", tmp_path / "end.sh", f"python={PYTHON}", f"out={tmp_path}"])
    commands = "\n".join(closing_commands(output, tmp_path)).replace("--max-epoch 10", "--max-epoch 2")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1], "a summary"


def test_install_leaves_a_complete_environment_alone_and_explains_what_it_lacks(tmp_path):
    assert "does not fit" in run_script("install.sh", f"venv={tmp_path}/venv", "python=false", status=1)
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def installed(tmp_path):
    """Runs a script with a Python that makes virtual environments of itself; returns what each Python was asked for."""
    python, log = tmp_path / "python", tmp_path / "asked"
    python.write_text(
        f"#!/bin/sh\nprintf '%s\\t' \"$@\" >>{log}\necho >>{log}\n"
        'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
        'if [ "$2" = "import fairseq" ]; then exit 1; fi\n'
        f'case "$*" in *fairseq-fixed*) cp "$DIST_EXTRA_CONFIG" {tmp_path}/build.cfg;'
        f" if ninja; then touch {tmp_path}/by_ninja; fi; esac\n"
    )
    python.chmod(0o755)

    def run(script: str, *arguments: str) -> list[list[str]]:
        run_script(script, f"venv={tmp_path / 'venv'}", f"python={python}", *arguments)
        return [line.split("\t")[:-1] for line in log.read_text().splitlines()]

    return run


@pytest.mark.parametrize(("extras", "given"), [("", "fairseq"), ("plot,docs", "fairseq,plot,docs")])
def test_install_gives_pip_the_extras(installed, extras, given):
    words = next(words for words in installed("install.sh", f"extras={extras}") if "--editable" in words)
    assert words[words.index("--editable") + 1] == f"{ROOT}[{given}]"


def test_install_builds_fairseqs_extensions_side_by_side(installed, tmp_path, monkeypatch):
    """Without ninja, as torch has one build.ninja for all of them."""
    (tmp_path / "path").mkdir()
    program(tmp_path / "path" / "ninja", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    installed("install.sh")
    assert not (tmp_path / "by_ninja").exists()
    monkeypatch.setenv("DIST_EXTRA_CONFIG", str(tmp_path / "build.cfg"))
    distribution = setuptools.Distribution()
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_ext")
    build.ensure_finalized()
    assert 1 <= build.parallel <= len(os.sched_getaffinity(0))


def test_install_ends_where_fairseq_cannot_be_built(tmp_path):
    script = 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    script += 'case "$*" in "-c import fairseq" | *fairseq-fixed*) echo "no compiler"; exit 3; esac\n'
    output = run_script("install.sh", f"venv={tmp_path / 'venv'}", program(tmp_path / "python", script), status=1)
    assert "no compiler" in output
    assert "run the same command again; it continues from here" in output
    assert "fairseq_poolingformer with extras" not in output


def test_the_oldest_versions_are_installed_and_tested(installed):
    asked = installed("test_oldest.sh")
    assert next(words for words in asked if "--editable" in words)[-2:] == [f"{ROOT}[fairseq]", "torch==2.10"]
    assert {"torch==2.10", "numpy==2.0", "tiktoken==0.13"} < set(asked[-2])
    assert asked[-1][:2] == ["-m", "pytest"]
    assert all((ROOT / name).is_file() for name in asked[-1] if name.endswith(".py"))


def test_plot_reads_resumed_trainings_and_any_validation_split(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import plot_loss

    log = tmp_path / "train.log"
    log.write_text(
        "{'_name': None, 'common': {'seed': 1}}\n"
        '{"epoch": 1, "loss": "9.5", "nll_loss": "9.1", "num_updates": "10"}\n'
        '{"epoch": 1, "loss": "8.5", "nll_loss": "8.1", "num_updates": "20"}\n'
        '{"epoch": 1, "valid_loss": "8.2", "valid_nll_loss": "8.0", "valid_num_updates": "20"}\n'
        '{"epoch": 1, "train_loss": "9.0", "train_nll_loss": "8.6", "train_num_updates": "20"}\n'
        "Loaded checkpoint checkpoint_last.pt\n"
        '{"epoch": 1, "loss": "8.4", "nll_loss": "7.9", "num_updates": "20"}\n'
        '{"epoch": 1, "loss": "7.4", "nll'
    )
    assert plot_loss.read_log(log) == {"training": {10: 9.1, 20: 7.9}, "valid": {20: 8.0}}
    plain = tmp_path / "plain.log"
    plain.write_text('{"epoch": 1, "test-few_loss": "3", "test-few_num_updates": "1e+06"}\n')
    assert plot_loss.read_log(plain) == {"test-few": {10**6: 3.0}}
    run_script("plot_loss.py", log, plain, "--output", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    log.write_text("nothing\n")
    assert "no loss in it" in run_script("plot_loss.py", log, "--output", tmp_path / "loss.png", status=1)


def test_comparison_leaves_cells_without_a_result_empty(tmp_path):
    """The first flavour of ROUGE is rouge-score with stemming, the one to show."""
    flavours = [
        {"scores": {name: {"f1": {"mean": f1}} for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")}}
        for f1 in (0.25, 0.75)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"flavours": flavours}))
    arguments = [f"a={tmp_path}/a.json", "a=40.00,15.00,35.00", f"b={tmp_path}/b.json"]
    rows = [line.split() for line in run_script("compare.py", "rouge", *arguments).splitlines()]
    assert rows[1] == ["a", "25.00", "25.00", "25.00", "25.00", "40.00", "15.00", "35.00"]
    assert rows[2] == ["b", *"-------"]
    assert "published" not in run_script("compare.py", "rouge", f"a={tmp_path}/a.json")
    (tmp_path / "test.json").write_text(json.dumps({"bpc": 1.02345}))
    rows = run_script("compare.py", "bits", f"small={tmp_path}/test.json", "small=1.00", "large=0.99").splitlines()
    assert [line.split() for line in rows[1:]] == [["small", "1.0234", "1.00"], ["large", "-", "0.99"]]
    assert "3 published numbers" in run_script("compare.py", "rouge", "a=40.00,15.00", status=2)
    assert "give NAME=FILE.json" in run_script("compare.py", "rouge", tmp_path / "a.json", status=2)


def test_scores_of_several_trainings_are_a_mean_and_a_deviation(tmp_path):
    for seed, f1 in ((1, 40.0), (2, 42.0)):
        (tmp_path / f"{seed}.json").write_text(json.dumps({"f1": f1}))
    files = [f"{tmp_path}/{seed}.json" for seed in (1, 2, 3)]  # the last is not there yet
    rows = ["--row", "one", "f1", "75.2", files[0], "--row", "all", "f1", "75.2", *files, "--row", "no", "f1", "-", "x"]
    assert [line.split() for line in run_script("compare.py", "tasks", *rows).splitlines()[1:]] == [
        ["one", "f1", "40.00", "75.2"],
        ["all", "f1", "41.00", "±", "1.41", "(2)", "75.2"],
        ["no", "f1", "-", "-"],
    ]
    assert "no figure 'em'; there are f1" in run_script(
        "compare.py", "tasks", "--row", "a", "em", "-", files[0], status=2
    )
    assert "give NAME FIGURE PUBLISHED and" in run_script("compare.py", "tasks", "--row", "a", "f1", "-", status=2)


def test_comparison_of_answers(tmp_path):
    def points(long, short):
        rest = {"precision": 0.1, "recall": 0.2}
        return {"long": {"best": rest | {"f1": long}}, "short": {"best": rest | {"f1": short}}}

    best = points(0.5, 0.25)
    average = {f"avg_passage_{figure}": value for figure, value in (("precision", 1), ("recall", 0.6), ("f1", 0.75))}
    average |= {f"avg_minimal_{figure}": 0.125 for figure in ("precision", "recall", "f1")}
    average = {"average": average}
    reports = {
        "nq": {"official": {}, "all": best},
        "english": {"official": average, "languages": {"english": {}}, "all": best},
        "tydi": {"official": average, "languages": {"thai": {}, "english": {}}, "all": best},
        "nq2": {"official": {}, "all": points(0.75, 0.25)},
    }
    for name, report in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    files = [f"{name}={tmp_path}/{name}.json" for name in reports]
    files += [f"seeds={tmp_path}/nq.json", f"seeds={tmp_path}/nq2.json", f"missing={tmp_path}/no.json"]
    output = run_script("compare.py", "answers", *files, "nq=77.7,77.3,77.5,-,-,58.6")
    assert re.search(
        r"^seeds +10\.00 +20\.00 +62\.50 \[50\.00, 75\.00\] +10\.00 +20\.00 +25\.00( +-){6}$", output, re.MULTILINE
    )
    assert re.search(r"^missing( +-){12}$", output, re.MULTILINE)
    rows = [line.split() for line in output.splitlines()]
    nq = ["10.00", "20.00", "50.00", "10.00", "20.00", "25.00"]
    assert rows[1] == ["nq", *nq, "77.7", "77.3", "77.5", "-", "-", "58.6"]
    assert rows[2] == ["english", *nq, *["-"] * 6]
    assert rows[3] == ["tydi", "100.00", "60.00", "75.00", "12.50", "12.50", "12.50", *["-"] * 6]

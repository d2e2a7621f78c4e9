"""The run scripts: what they would run at full size, and that they run, at tiny size and on a CPU."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import setuptools
import torch

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, options
from tests.lab import ROOT, SCRIPTS, run_script


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
    ("arguments", "message"),
    [
        (["gpus=3"], "batch=128 cannot be divided among 3 processes"),
        (["lrr=1"], "no option lrr="),
        (["steps=train,test"], "steps= must be"),
        (["experiments=foo"], "foo is not in"),
        (["nodes=2", "gpus=1"], "needs rendezvous="),
        (["warmup=many"], "warmup= must be a whole number"),
        (["lr=fast"], "lr= must be a number"),
        (["dry_run=yes"], "dry_run= must be 0 or 1"),
        (["dry_run=0"], "give raw="),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path):
    output = run_script("summarization/arxiv_4k.sh", "dry_run=1", f"out={tmp_path}", *arguments, status=1)
    assert message in output


@pytest.fixture
def corpus_to_preprocess(tmp_path):
    """Arguments with which a script calls the program ``tmp_path / "python"`` for its first step, and no other."""
    (tmp_path / "vocab.bpe").touch()
    return ["steps=preprocess,train", f"out={tmp_path}", f"raw={tmp_path}", f"bpe={tmp_path}", "gpus=0"]


def program(path: Path, text: str) -> str:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return f"python={path}"


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


@pytest.fixture(scope="session")
def raw(tmp_path_factory) -> Path:
    """A corpus in the format of the arXiv/PubMed release: 16 + 4 + 5 documents."""
    folder, generator = tmp_path_factory.mktemp("raw"), random.Random(0)
    words = ["the", "theory", "of", "long", "documents", "attends", "to", "another", "naïve", "café"]
    for split, count in (("train", 16), ("val", 4), ("test", 5)):
        with open(folder / f"{split}.txt", "w", encoding="utf-8") as file:
            for number in range(count):
                sentences = [" ".join(generator.choices(words, k=12)) + " ." for _ in range(3)]
                record = {"article_id": f"{split}{number}", "article_text": sentences, "section_names": ["intro"]}
                record |= {"sections": [sentences], "abstract_text": [f"<S> {sentences[0]} </S>"]}
                file.write(json.dumps(record) + "\n")
    return folder


TINY = ["input=48", "target=12", "w1=4", "epochs=1", "warmup=1", "beam=2", "gpus=0", "num_workers=0", "perl=0"]
TINY += ["batch=8", "device_batch=4", "preprocess_workers=1"]
TWO_LEVELS = ["arch=poolingformer_bart_tiny", "w2=8", "pooled_layers=1"]
# LED has no architecture of tiny size, and so the flags of one
TINY_LED = ["--", "--encoder-embed-dim", "64", "--encoder-ffn-embed-dim", "256", "--encoder-layers", "2"]
TINY_LED += ["--decoder-layers", "2", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
TINY_LED += ["--decoder-ffn-embed-dim", "256"]


@pytest.mark.full
def test_all_steps_run(bart, raw, tmp_path):
    """Those of arxiv_4k run in two processes below."""
    arguments = [f"python={PYTHON}", f"out={tmp_path}", f"raw={raw}", f"bart={bart}", *TINY, *TINY_LED]
    output = run_script("summarization/led_4k.sh", *arguments)
    folder = tmp_path / "led_4k"
    assert len((folder / "hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 5
    assert json.loads((folder / "rouge.json").read_text())["examples"] == 5
    assert (folder / "checkpoints" / "checkpoint_best.pt").is_file()
    assert '_num_updates": "2"' in output
    assert "loading pretrained model from" in output
    row = output.splitlines()[-1].split()
    assert row[:2] == ["led_4k,", "test"]
    assert len(row) == 9, "four scores of ours, three published"


@pytest.mark.full
def test_two_processes_are_one_training_that_resumes_and_share_generation(bart, raw, tmp_path):
    arguments = [f"python={PYTHON}", f"out={tmp_path}", f"raw={raw}", f"bart={bart}", *TINY, *TWO_LEVELS]
    arguments += ["cpus=2", "device_batch=2"]
    # one update, so that there is something left to do
    output = run_script("summarization/arxiv_4k.sh", *arguments, "steps=preprocess,train", "--", "--max-update", 1)
    assert "process 1 of 2" in output
    assert "--update-freq 2" in output
    rouge = ["metric=rouge1", "steps=train"]
    output = run_script("summarization/arxiv_4k.sh", *arguments, *rouge)
    assert "loading pretrained model from" not in output
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d @ 1 updates\)", output)
    assert '_num_updates": "2"' in output
    assert "valid_best_rouge1" in output
    output = run_script("summarization/arxiv_4k.sh", *arguments, "steps=generate,score", "gen_batch=2")
    files = [(tmp_path / "arxiv_4k" / f"generate.{shard}.out").read_text() for shard in range(2)]
    numbers = [re.findall(r"^D-(\d+)", text, re.MULTILINE) for text in files]
    assert [len(found) for found in numbers] == [3, 2]
    assert sorted(numbers[0] + numbers[1]) == list("01234")
    assert output.count("ROUGE of 5 examples") == 1
    assert len((tmp_path / "arxiv_4k" / "hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 5


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
    assert re.search(r"^one_softmax \(192 keys\)( +\d+\.\d\d){4}$", output, re.MULTILINE)
    assert re.search(r"^one_softmax \(192 keys\) - equal_keys \(192 keys\) +\S+ \(", output, re.MULTILINE)
    assert re.search(r"^equal_keys \(192 keys\)( +\d+){5}$", output, re.MULTILINE)
    assert "--pool-type ldconv --pool-merge softmax" in output
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    logs = [(tmp_path / name / "train.out").read_text() for name in runs]
    assert [", pool_merge=softmax" in log for log in logs] == [True, False]
    kept = [tmp_path / name / file for name in runs for file in ("checkpoints/checkpoint_last.pt", "summaries.txt")]
    trained = [path.stat().st_mtime_ns for path in kept]
    again = run_script("quickstart.sh", *arguments, *tiny, f"data={tmp_path / 'corpus'}")
    assert again.count("done by an earlier run") == 2
    assert [path.stat().st_mtime_ns for path in kept] == trained
    refused = run_script("quickstart.sh", *arguments, f"data={data_folder}", status=1)
    assert "another vocabulary than the demo model" in refused


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
        f'case "$*" in *fairseq-fixed*) cp "$DIST_EXTRA_CONFIG" {tmp_path}/build.cfg; esac\n'
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
    installed("install.sh")
    monkeypatch.setenv("DIST_EXTRA_CONFIG", str(tmp_path / "build.cfg"))
    distribution = setuptools.Distribution()
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_ext")
    build.ensure_finalized()
    assert 1 <= build.parallel <= len(os.sched_getaffinity(0))


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

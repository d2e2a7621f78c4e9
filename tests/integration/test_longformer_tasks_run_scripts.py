"""The run scripts of Longformer's downstream tasks: the paper's numbers at full size, one whole run at tiny size."""

from __future__ import annotations

import json
import re

import pytest

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, module, options
from tests.lab import run_script
from tests.text.tiny_gpt2 import write_vocabulary

SCRIPT = "longformer_tasks/run.sh"


def commands(experiment: str, *arguments: object) -> dict[str, list[list[str]]]:
    """The commands of a dry run on eight GPUs by their names, each as its words."""
    found: dict[str, list[list[str]]] = {}
    for words in dry_run(SCRIPT, f"experiments={experiment}", "gpus=8", *arguments):
        found.setdefault(module(words), []).append(words)
    return found


def test_hotpotqa_trains_a_second_stage_on_the_paragraphs_that_the_first_one_keeps():
    steps = commands("hotpotqa")
    first, second = steps["train"]
    folder = "/out/hotpotqa"
    assert ("/out/data/hotpotqa" in first, f"{folder}/second_stage" in second) == (True, True)
    assert options(first)["--save-dir"] == f"{folder}/first_stage/checkpoints"
    assert options(second)["--save-dir"] == f"{folder}/checkpoints"
    scores = [f"{folder}/first_stage/{split}.json" for split in ("train", "valid")]
    *first_stage, last = map(options, steps["predict"])
    assert [found["--output"] for found in first_stage] == scores
    assert [found["--subset"] for found in first_stage] == ["train", "valid"]
    assert {found["--path"] for found in first_stage} == {f"{folder}/first_stage/checkpoints/checkpoint_best.pt"}
    assert last["--path"] == f"{folder}/checkpoints/checkpoint_best.pt"
    assert f"{folder}/second_stage" in steps["predict"][-1]
    _, words = steps["preprocess"]
    place = words.index("--paragraph-scores")
    assert words[place + 1 : place + 3] == scores
    assert options(words)["--output-folder"] == f"{folder}/second_stage"
    assert "--train" in words


def test_hyperpartisan_is_trained_with_five_seeds():
    steps = commands("hyperpartisan")
    assert [options(words)["--seed"] for words in steps["train"]] == ["1", "2", "3", "4", "5"]
    outputs = [f"/out/hyperpartisan/seed{seed}/predictions" for seed in range(1, 6)]
    assert [options(words)["--output"] for words in steps["predict"]] == outputs


@pytest.mark.parametrize("script", ["table_7", "table_10", "large"])
def test_every_table_runs_dry(script):
    output = run_script(f"longformer_tasks/{script}.sh", f"python={PYTHON}", "out=/out", "dry_run=1", "gpus=8")
    assert "published" in output
    with_figures = [line.split() for line in output.splitlines() if re.match(r"\w+, (valid|test) ", line)]
    assert {len(row) for row in with_figures} == {5}
    split = "test" if script == "large" else "valid"
    count = sum(row[4] != "-" for row in with_figures if row[1] == split)
    assert count == {"table_7": 12, "table_10": 9, "large": 3}[script]
    assert all(row[4] == "-" for row in with_figures if row[1] != split)


@pytest.mark.full
def test_wikihop_from_the_released_files_to_its_figure(tmp_path):
    """Four questions learnt by heart on a CPU, from JSON to accuracy."""
    supports = ["the theory of attention", "another document that attends", "what is it"]
    questions = [
        {"id": f"WH_{k}", "query": q, "candidates": ["theory", "document", "it"], "supports": supports, "answer": a}
        for k, (q, a) in enumerate([("the of", "theory"), ("that", "it"), ("is", "it"), ("attends", "document")])
    ]
    raw = tmp_path / "raw"
    raw.mkdir()
    for split in ("train", "dev"):
        (raw / f"{split}.json").write_text(json.dumps(questions))
    output = run_script(
        *(SCRIPT, "experiments=wikihop", f"out={tmp_path}", f"raw={raw}", f"python={PYTHON}", "gpus=0"),
        *(f"bpe={write_vocabulary(tmp_path / 'gpt2')}", "pretrained=-", "arch=longformer_roberta_tiny", "length=128"),
        *("w1=8", "batch=4", "device_batch=4", "lr=3e-3", "warmup=2", "epochs=30", "recompute=0", "num_workers=0"),
        *("preprocess_workers=1", "--", "--dropout", "0", "--attention-dropout", "0", "--validate-interval", "30"),
        "--keep-order",
    )
    assert json.loads((tmp_path / "wikihop" / "scores.json").read_text())["accuracy"] == 100, output[-3000:]
    assert output.splitlines()[-1].split() == ["wikihop,", "valid", "accuracy", "100.00", "75.0"]

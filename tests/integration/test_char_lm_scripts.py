"""The run script of the character language models: the papers' numbers in a dry run, and stages at tiny size."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.options import get_training_parser, parse_args_and_arch

from fairseq_poolingformer.checkpoints import load
from tests.forked_python import PYTHON
from tests.integration.conftest import options
from tests.lab import ROOT, run_script


def dry_run(script: str, *arguments: str) -> str:
    """The output of a script, a command in each line."""
    dry = [f"python={PYTHON}", "out=/out", "dry_run=1"]
    return run_script(f"char_lm/{script}", *dry, *arguments).replace("\\\n", " ")


def training_words(output: str) -> list[list[str]]:
    """The words after ``fairseq-train`` of each stage; ``--flag=value`` as two words."""
    commands = [shlex.split(line) for line in output.splitlines() if "fairseq_cli.train" in line]
    return [
        [part for word in words[words.index("fairseq_cli.train") + 1 :] for part in word.split("=", 1)]
        for words in commands
    ]


def trainings(experiment: str, *arguments: str) -> list[dict[str, str]]:
    """The flags of each stage."""
    output = dry_run("run.sh", f"experiments={experiment}", "steps=train", *arguments)
    return [options(words) for words in training_words(output)]


def published(output: str) -> dict[str, str]:
    """The last column of the table that a script ends with."""
    table = output[output.index("this run  published") :].splitlines()[1:]
    return {line.split(",")[0]: line.split()[-1] for line in table}


def column(stages: list[dict[str, str]], flag: str) -> list[str | None]:
    return [stage.get(flag) for stage in stages]


@pytest.mark.parametrize(
    ("experiment", "ends", "warmups", "dropout"),
    [
        ("longformer_enwik8", [430, 480, 530, 565, 570], [10000, 5000, 5000, 3500, 500], "0.2"),
        ("longformer_enwik8_large", [350, 375, 385, 390, 395], [10000, 2500, 1000, 500, 500], "0.4"),
    ],
)
def test_longformers_stages_are_those_of_its_table_12(experiment, ends, warmups, dropout):
    stages = trainings(experiment, "gpus=8")
    assert column(stages, "--tokens-per-sample") == ["2048", "4096", "8192", "16384", "23040"]
    assert column(stages, "--max-update") == [str(end * 1000) for end in ends]
    assert column(stages, "--stage-first-update") == ["0", *(str(end * 1000) for end in ends[:-1])]
    assert column(stages, "--warmup-updates") == [str(warmup) for warmup in warmups]
    assert [float(lr) for lr in column(stages, "--lr")] == [0.00025, 0.000125, 0.0000625, 0.00003125, 0.000015625]
    for number, (stage, batch) in enumerate(zip(stages, (32, 32, 16, 16, 16), strict=True)):
        assert int(stage["--batch-size"]) * 8 * int(stage["--update-freq"]) == batch
        assert stage.get("--window-scale") == (str(2**number) if number else None)
        assert "--window-size" not in stage  # the first stage's are the architecture's
        constant = {"--optimizer": "fused_adamw", "--clip-norm": "0.25", "--weight-decay": "0.01"}
        constant |= {"--lr-scheduler": "staged", "--dropout": dropout}
        assert {flag: stage[flag] for flag in constant} == constant
        restored = f"/out/{experiment}/stage{number}/checkpoints/checkpoint_last.pt" if number else None
        assert stage.get("--restore-file") == restored
        assert ("--reset-dataloader" in stage) == (number > 0)
        assert "--reset-optimizer" not in stage
        assert "--require-memory" not in stage


def test_longformers_ablations_are_those_of_its_table_4():
    output = dry_run("longformer_ablations.sh", "gpus=8")
    assert published(output) == {
        "window_decreasing": "1.24",
        "window_fixed": "1.23",
        "window_increasing": "1.21",
        "dilation_two_heads": "1.20",
    }
    assert output.count("--subset valid") == 4 * 8
    rows = [understood(words) for words in training_words(output)]
    increasing = [window.left for window in rows[2].decoder.windows]
    assert increasing == sorted(increasing)
    assert [window.left for window in rows[0].decoder.windows] == increasing[::-1]
    assert [window.left for window in rows[1].decoder.windows] == [230] * 12
    assert [window.left for window in rows[3].decoder.windows] == increasing
    widest = [max(max(window.head_dilations(8)) for window in row.decoder.windows) for row in rows]
    assert widest == [1, 1, 1, 4]


def test_gaas_ablations_are_those_of_its_table_3():
    """The share of the span, the gate, updates and bits per character."""
    output = dry_run("gaa_ablations.sh", "gpus=8")
    found = []
    for words, bpc in zip(training_words(output), published(output).values(), strict=True):
        model = understood(words)
        gated = any(".gate" in name for name, _ in model.named_parameters())
        found.append((model.decoder.spans.shared is not None, gated, options(words)["--max-update"], bpc))
    assert sorted(found) == [
        (False, False, "600000", "1.02"),
        (False, True, "150000", "1.02"),
        (True, False, "600000", "0.99"),
        (True, True, "150000", "0.99"),
    ]


def test_every_row_is_understood():
    """By fairseq's parser and by the model, whose size without the large ones' is about 40 million parameters."""
    table = (ROOT / "run_scripts" / "char_lm" / "experiments.txt").read_text().splitlines()
    names = [line.split()[0] for line in table if line and not line.startswith(("#", "name "))]
    output = dry_run("run.sh", f"experiments={','.join(names)}", "gpus=2", "steps=train")
    sizes: dict[str, set[int]] = {}
    for words in training_words(output):
        model, name = understood(words), Path(options(words)["--save-dir"]).parent.parent.name
        sizes.setdefault(name, set()).add(sum(p.numel() for p in model.parameters()))
    assert list(sizes) == names
    assert sizes["transformer_enwik8"] == sizes["transformer_text8"] == sizes["transformer_xl_enwik8"]
    for system in ("longformer", "transformer_xl", "adaptive_span"):
        (small,), (large,) = sizes[f"{system}_enwik8"], sizes[f"{system}_enwik8_large"]
        assert sizes[f"{system}_text8"] == {small}
        assert 38e6 < small < 42e6 < 100e6 < large


def understood(words: list[str]):
    """The model of a training's flags, without memory for its parameters."""
    args = parse_args_and_arch(get_training_parser(), words)
    with torch.device("meta"):
        return tasks.setup_task(args).build_model(args)


def test_large_adaptive_spans_end_with_a_tenth_of_the_learning_rate():
    for corpus, first in (("enwik8", 150_000), ("text8", 250_000)):
        stages = trainings(f"adaptive_span_{corpus}_large", "gpus=8")
        assert [float(lr) for lr in column(stages, "--lr")] == [0.07, 0.007]
        assert column(stages, "--max-update") == [str(first), str(first + 20_000)]
        assert column(stages, "--warmup-updates") == ["32000", "0"]
        assert "--restore-file" in stages[1]


def test_models_with_spans_are_trained_with_the_published_optimizer():
    """Gradients are clipped by parameter and not all together; --fp16 must not make one parameter of all."""
    names = ("adaptive_span_enwik8_large", "gaa_text8", "gate_without_gaa")
    for precision, flat in (("fp16", False), ("bf16", True), ("fp32", True)):
        for stage in (stage for name in names for stage in trainings(name, "gpus=8", f"precision={precision}")):
            assert (stage["--optimizer"], stage["--parameter-clip-norm"]) == ("clipped_adagrad", "0.03")
            assert "--clip-norm" not in stage
            assert ("--fp16-no-flatten-grads" not in stage) == flat
    (other,) = trainings("transformer_xl_enwik8", "gpus=2", "precision=fp16")
    assert other["--clip-norm"] == "0.25"
    assert not {"--fp16-no-flatten-grads", "--parameter-clip-norm"} & set(other)


def test_transformer_xl_has_one_cosine():
    """As its published scripts; the small model's 22 rows of text suit one or two devices."""
    (small,) = trainings("transformer_xl_enwik8", "gpus=2")
    (large,) = trainings("transformer_xl_enwik8_large", "gpus=8")
    for stage, rows, length, warmup in ((small, 11, 512, 0), (large, 8, 768, 4000)):
        expected = {"--lr-scheduler": "cosine", "--batch-size": str(rows), "--tokens-per-sample": str(length)}
        expected |= {"--warmup-updates": str(warmup), "--max-update": "400000"}
        assert {flag: stage[flag] for flag in expected} == expected
        assert "--stage-first-update" not in stage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batch=32"], "batch=32 must have a value for each of 5 stages"),
        (["schedule=cosine"], "schedule=cosine is for one stage"),
        (["gpus=32", "device_batch=1,1,1,1,1"], "batch=16 cannot be divided among 32 processes"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path):
    output = run_script("char_lm/longformer.sh", "gpus=0", "dry_run=1", f"out={tmp_path}", *arguments, status=1)
    assert message in output


@pytest.mark.full
def test_stages_go_on_from_one_another(tmp_path):
    """Parameters, the optimizer's state and the number of updates; windows double and the learning rate halves."""
    text = np.random.default_rng(0).integers(97, 101, 700, dtype=np.uint8)
    (tmp_path / "text").write_bytes(text.tobytes())
    run = ["experiments=longformer_enwik8", f"out={tmp_path}", f"raw={tmp_path}/text", f"python={PYTHON}"]
    run += ["gpus=0", "arch=longformer_lm_tiny", "lengths=10,20", "window_scale=1,2", "batch=4,2", "device_batch=2,2"]
    run += ["updates=4,3", "warmup=2,1", "lr=0.01,0.005", "num_workers=0", "context=30", "stride=10"]
    run += ["save_updates=100"]
    output = run_script("char_lm/run.sh", *run)
    folder = tmp_path / "longformer_enwik8"
    first, second = (load(folder / f"stage{number}" / "checkpoints" / "checkpoint_last.pt") for number in (1, 2))
    for checkpoint, updates, lr, scale in ((first, 4, 0.01, 1), (second, 7, 0.005, 2)):
        assert checkpoint["cfg"]["model"].window_scale == scale
        assert checkpoint["optimizer_history"][-1]["num_updates"] == updates
        optimizer = checkpoint["last_optimizer_state"]
        assert {int(state["step"]) for state in optimizer["state"].values()} == {updates}
        assert optimizer["param_groups"][0]["lr"] == pytest.approx(lr)
    result = json.loads((folder / "test.json").read_text())
    assert result["scored"] == 35
    name, split, own, paper = output.splitlines()[-1].split()
    assert (name, split, float(own), paper) == ("longformer_enwik8,", "test", round(result["bpc"], 4), "1.00")
    again = run_script("char_lm/run.sh", *run, "steps=train")
    assert again.count("was finished by an earlier run") == 2

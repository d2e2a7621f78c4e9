"""The benchmarks as they are typed, at tiny sizes, and what they refuse."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import re
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from fairseq_poolingformer.huggingface import band
from tests.forked_python import PYTHON
from tests.lab import ROOT, call

TINY = ("--size", "tiny", "--vocabulary", 300, "--led-window", 16, "--threads", 1)
CHECKED = ("--target-length", 12, "--check-length", 70)


@pytest.fixture
def scripts(monkeypatch):
    """The benchmarks' folder on the path, as it is when one is run; the log of this process stays as it is."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def run(script: str, *arguments: object, status: int = 0) -> str:
    """Run a benchmark with one thread; both streams."""
    return call([PYTHON, f"benchmarks/{script}.py", *arguments], status)


def tables(output: str) -> list[dict[str, dict[str, float]]]:
    """Of every table the rows by name, each as heading -> number."""
    found: list[dict[str, dict[str, float]]] = []
    heads: list[str] = []
    for line in output.splitlines():
        cells = re.split(r"\s{2,}", line)
        if "least" in cells and not cells[0]:
            heads = cells[1:]
            found.append({})
        elif heads and len(cells) == len(heads) + 1:
            found[-1][cells[0]] = dict(zip(heads, map(float, cells[1:]), strict=True))
    return found


def assert_measured(rows: dict[str, dict[str, float]]) -> None:
    """Times, memory and ratios of every row go together; the first row is the peer."""
    peer = next(iter(rows.values()))
    for row in rows.values():
        assert 0 < row["least"] <= row["s"] <= row["greatest"]
        assert row["peak GiB"] > row["beyond model"] >= 0
        assert row["× faster"] == pytest.approx(peer["s"] / row["s"], rel=0.05, abs=0.02)
        assert row["× smaller"] == pytest.approx(peer["peak GiB"] / row["peak GiB"], abs=0.04)


ONCE = ("--repeats", 1, "--warm-ups", 0, "--threads", 1)
STEP = (*TINY, *CHECKED, "--source-length", 512, "--systems", "huggingface-led", "window-512", "--repeats", 2)
STEP += ("--dtype", "bfloat16", "--checkpoint-activations", "--attention-dropout", 0.1, "--allocator", "both")
GENERATION = (*TINY, "--source-length", 128, "--tokens", 12, "--beam", 3, "--no-repeat-ngram-size", 2)
MEASURED = {  # arguments, what the output says, and the rows of its tables
    "attention": (
        ("--length", 200, "--longest-dense", 100, "--parts", "levels", "disentangled", *ONCE),
        "a product of 4096 × 768 by 768 × 768: ",
        [["level one", "level one, one global token"], ["level one", "level one, disentangled"]],
    ),
    "training_step": (
        STEP,
        "512 tokens in, 12 out, bfloat16, attention dropout 0.1, activations checkpointed",
        [["LED of Hugging Face", "one window, 512 in the upper layers"]] * 2,
    ),
    "generation": (
        (*GENERATION, "--systems", "poolingformer"),
        "one document of 128 tokens, beam 3, 12 tokens, float32, no 2-gram twice",
        [["Poolingformer"]],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_what_is_measured(name):
    arguments, said, names = MEASURED[name]
    output = run(name, *arguments)
    assert said in output
    found = tables(output)
    assert [list(table)[: len(rows)] for table, rows in zip(found, names, strict=True)] == names
    for table in found:
        assert_measured(table)


def test_the_limits_of_attention_count_the_pairs_that_see_each_other(scripts):
    import attention

    from fairseq_poolingformer.attention.patterns import visible_pairs

    args = attention.parser().parse_args(["--length", "4096"])
    counts = attention.multiply_adds(args, "both")
    forward = attention.multiply_adds(args, "forward")
    middle = slice(1000, 3000)  # nearer to the edges they are fewer
    for name, window, pooling, keys in (
        ("level one", attention.WINDOW, None, 4096),
        ("level two, mean", attention.POOLED_WINDOW, attention.POOLING, 1024),
    ):
        seen = visible_pairs(window, pooling, 1, 0, 4096, keys)[0, middle].sum(1).float().mean().item()
        assert counts[name] == pytest.approx(7 * 4096 * 768 * seen, rel=0.005)
        assert forward[name + attention.FLEX] == pytest.approx(2 * 4096 * 768 * seen, rel=0.005)
    full, projection = 4096 * 4096 * 768, 4096 * 768 * 768
    assert forward["full attention"] == 2 * full + 4 * projection
    assert counts["full attention"] == 7 * full + 3 * 4 * projection


@pytest.mark.slow
def test_growth_and_its_plots(tmp_path):
    file = tmp_path / "growth.json"
    output = run(
        *("growth", "--lengths", 128, 512, "--longest-dense", 100, *ONCE),
        *("--systems", "full attention", "LED of Hugging Face", "Poolingformer", "--output", file),
    )
    for table in tables(output):
        assert list(table) == ["Poolingformer"], "no full attention above --longest-dense, no LED of half a window"
        assert_measured(table)
    growth = re.search(r"^Poolingformer +128 +512 +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    rows = {(row["system"], row["length"]): row for row in json.loads(file.read_text())["rows"]}
    short, long = rows["Poolingformer", 128], rows["Poolingformer", 512]
    assert float(growth[1]) == pytest.approx(long["seconds"] / short["seconds"], abs=0.01)

    run("plot", file, tmp_path / "growth")
    for name in ("time", "memory"):
        assert "<svg" in (tmp_path / f"growth_{name}.svg").read_text()


@pytest.mark.slow
def test_hosts():
    output = run("hosts", "--lengths", 64, "--layers", 2, "--global-every", 2, "--repeats", 1, "--warm-ups", 0)
    rows = tables(output)
    flex = [] if "flex_attention is left out: it does not run here" in output else ["flex_attention"]  # no compiler
    assert [list(table) for table in rows] == [["sdpa", *flex, "band", "level two"], ["sdpa", "band", "level two"]]
    for table in rows:
        assert_measured(table)


def test_hosts_are_not_timed_where_band_is_wrong(scripts, monkeypatch):
    hosts = importlib.import_module("hosts")
    attention = band.band_attention
    monkeypatch.setattr(band, "band_attention", lambda *tensors, **arguments: 1.1 * attention(*tensors, **arguments))
    with pytest.raises(SystemExit, match="band: differs by"):
        hosts.main(["--lengths", "64", "--layers", "2"])


def test_documents_hide_a_key(scripts):
    passkey = importlib.import_module("passkey")
    documents = passkey.Documents(held_out=True)
    tokens, labels = documents.draw(3, 60, np.random.default_rng(0), restored=4)
    asking, said = documents.question.tolist(), documents.statement.tolist()
    for row, wanted in zip(tokens.tolist(), labels.tolist(), strict=True):
        key = wanted[len(asking) - 1]
        assert key >= documents.first_key
        assert row[: len(asking)] == asking
        place = row.index(key)
        assert row.count(key) == 1
        assert row[place - len(said) : place] == said
        others = [n for n, label in enumerate(wanted) if label not in (key, -100)]
        assert 0 < len(others) <= 4, "the statement may lie over some"
        assert all(row[n] == documents.mask for n in others)


@pytest.mark.slow
def test_passkey(tmp_path):
    sizes = ("--width", 32, "--layers", 3, "--lengths", 64, 200, "--start-seconds", 0.5, "--seconds", 0.2)
    arguments = ("passkey", "--output-folder", tmp_path, *sizes, "--documents", 3, "--seeds", 1, 2)
    output = run(*arguments, "--systems", "mix-global", "windows", "full")
    *_, mix, windows, full = output.splitlines()
    for line, name in ((mix, "mix-global"), (windows, "windows"), (full, "full")):
        assert re.fullmatch(name + r"( +\d+ \[\d+, \d+\]){2} +\d+", line)
    assert run(*arguments, "--systems", "full").splitlines()[-1] == full, "nothing is trained again"


@pytest.fixture
def short(scripts):
    """The benchmark of from_short and a short model of its that copies, but is not trained; its mask is 300."""
    from_short = importlib.import_module("from_short")
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=301, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=98
    )
    model = RobertaForMaskedLM(config).eval()
    from_short.lean_towards_copying(model, mask=300)
    return from_short, model


def test_a_start_copies_before_it_is_trained(short):
    from_short, model = short
    passage = torch.randint(4, 300, (40,))
    tokens = torch.cat([torch.tensor([0]), passage, torch.randint(4, 300, (9,)), passage, torch.tensor([2])])
    places = torch.arange(53, 87, 4)
    masked, at = tokens.index_fill(0, places, 300)[None], torch.zeros(1, len(tokens), dtype=torch.bool)
    at[0, places] = True
    with torch.no_grad():
        right = from_short.scores(model, masked, at).argmax(1) == tokens[places]
    assert right.float().mean() > 0.8


def test_published_attention_stands_in_the_place_of_ours(short, tmp_path):
    """A stand-in for it, by which a token sees itself alone, makes of a model what a window of 0 does."""
    from_short, model = short
    folder = tmp_path / "lsg_converter" / "attention_layers"
    folder.mkdir(parents=True)
    (folder / "lsg_self_attention.py").write_text(
        "import torch\n"
        "class LSGSelfAttention(torch.nn.Module):\n"
        "    def __init__(self, block_size, sparsity_type, sparsity_factor, attention_dropout_prob):\n"
        "        super().__init__()\n"
        "    def forward(self, query, key, value):\n"
        "        return value\n"
    )
    published = from_short.systems_of(8, 32)["lsg-norm-2"]
    alone = {"window_size": "0", "pooled_layers": "none", "global_tokens": 0}
    tokens, at = torch.randint(4, 300, (2, 192)), torch.ones(2, 192, dtype=torch.bool)
    theirs, ours = (
        from_short.scores(from_short.converted(model, settings, 192, tmp_path), tokens, at)
        for settings in (published, alone)
    )
    torch.testing.assert_close(theirs, ours, atol=0.02, rtol=0.02)


def test_starts_that_are_silent_begin_as_the_windows_alone(short):
    """And each system sees as many keys as its name or the table says."""
    from_short, model = short
    systems = from_short.systems_of(8, 32)
    tokens, at = torch.randint(4, 300, (2, 192)), torch.ones(2, 192, dtype=torch.bool)
    windows, silent, silent_mix, copies = (
        from_short.scores(from_short.converted(model, systems[name], 192, None), tokens, at)
        for name in ("level-one", "silent", "silent-mix", "copies")
    )
    assert torch.equal(windows, silent)
    assert torch.equal(windows, silent_mix)
    assert not torch.allclose(windows, copies, atol=0.1)
    keys = {name: from_short.keys_of(settings, 192) for name, settings in systems.items()}
    assert (keys["full"], keys["level-one"], keys["copies"], keys["lsg-norm-2"]) == (192, 16, 16 + 16, 40)


def test_intervals_of_bits_are_paired(short):
    """Two blocks whose difference is the same: their means have an interval, the difference has none."""
    from_short, _ = short
    one, other = [[[10, 10.0, 5]], [[10, 30.0, 5]]], [[[10, 15.0, 5]], [[10, 35.0, 5]]]
    assert from_short.cell([one], 0, "bits") == "2.00 ±1.00"
    assert from_short.cell([one, other], 0, "bits") == "2.25 ±1.00"
    assert from_short.cell([other], 0, "bits", [one]) == "+0.50 ±0.00"
    assert from_short.cell([one], 0, "right") == "50 ±0"
    assert from_short.cell([[[[0, 0.0, 0]]]], 0, "bits") == "-"


@pytest.mark.slow
def test_from_short(tmp_path):
    arguments = ("from_short", "--output-folder", tmp_path, "--quick", "--systems", "full", "mix", "window")
    output = run(*arguments)
    assert output.count("seed 1\n") == 3
    tables = (tmp_path / "tables.txt").read_text()
    assert output.endswith(tables)
    assert (
        len(re.findall(r"^mix +64( +[\d.]+ ±[\d.]+){3}( +-| +[\d.]+ ±[\d.]+){2} +\d+ +1$", tables, re.MULTILINE)) == 4
    )
    again = run(*arguments)
    assert "seed 1\n" not in again, "nothing is trained again"
    assert again.endswith(tables)


@pytest.mark.slow
def test_context_parallel():
    """Rows of equal sums; two processes exchange."""
    output = run("context_parallel", "--size", "tiny", "--tokens", 600, "--repeats", 1, "--cases", "1x1", "2x1")
    rows = [line.split() for line in output.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["1x1", "600"], ["2x1", "600"]]
    assert [float(row[-1]) > 0 for row in rows] == [False, True]


def test_training_is_not_timed_with_other_logits(scripts, monkeypatch):
    import training_step

    args = training_step.parser().parse_args([str(argument) for argument in (*TINY, *CHECKED)])
    training_step.check_led(args, 70)
    true = training_step.led_from_huggingface

    def narrower(args, theirs, *flags):
        config, task, model = true(args, theirs, *flags)
        model.encoder.global_tokens = 0
        return config, task, model

    monkeypatch.setattr(training_step, "led_from_huggingface", narrower)
    with pytest.raises(SystemExit, match=r"logits of LED here: differs by .*nothing is timed"):
        training_step.check_led(args, 70)


def test_training_is_not_timed_where_the_backend_is_wrong(scripts, monkeypatch):
    import training_step

    from fairseq_poolingformer.attention.backends.block import backend as block

    args = training_step.parser().parse_args([str(argument) for argument in (*TINY, *CHECKED)])
    training_step.check_backend(args, "poolingformer", 70)
    training_step.check_backend(args, "sdpa", 70)
    true = block.run
    monkeypatch.setattr(block, "run", lambda call: 1.01 * true(call))
    with pytest.raises(SystemExit, match="the encoder of Poolingformer: differs by"):
        training_step.check_backend(args, "poolingformer", 70)


def test_the_peer_generates_as_many_tokens(scripts):
    import generation

    arguments = ("--source-length", 40, "--tokens", 9, "--beam", 2)
    args = generation.parser().parse_args([str(argument) for argument in (*TINY, *arguments)])
    assert generation.huggingface_generation(args)()["encoder"] > 0
    search = generation.huggingface_search(generation.huggingface_led(args, source_length=40, target_length=10), args)
    assert [len(tokens) for tokens in search(generation.random_document(40, 300))] == [9, 9]


def test_generation_is_not_timed_with_other_tokens(scripts, monkeypatch):
    import generation

    args = generation.parser().parse_args(["--beam", "2"])
    generation.check(args)
    true = generation.led_from_huggingface

    def louder(args, theirs):
        config, task, model = true(args, theirs)
        with torch.no_grad():
            model.decoder.layers[0].encoder_attn.out_proj.weight.mul_(1.5)
        return config, task, model

    monkeypatch.setattr(generation, "led_from_huggingface", louder)
    with pytest.raises(SystemExit, match="beam 2 writes other tokens than Hugging Face"):
        generation.check(args)


def note(path: Path, name: str):
    """A case that writes down when it was run, and returns its own CPU time."""

    def run() -> tuple[str, float]:
        start = time.process_time()
        with open(path, "a", encoding="utf-8") as file:
            file.write(name)
        sum(range(10**6))
        return name, time.process_time() - start

    return run


def allocate(gib: float) -> float:
    return float(torch.ones(int(gib * 2**28))[-1])


def needing(gib: float):
    """A case that needs memory."""
    return partial(allocate, gib)


def fail():
    """A case that cannot be built."""
    raise ValueError("no such model")


def settings(**changed):
    """What a benchmark's command line gives ``measure``."""
    settings = {"device": "cpu", "threads": 1, "repeats": 1, "warm_ups": 0, "allocator": "glibc", "alone": False}
    return argparse.Namespace(**settings | {"memory_limit": None} | changed)


@pytest.mark.parametrize(("alone", "order"), [(False, "ababab"), (True, "aaabbb")])
def test_cases_run_in_turn_or_alone(alone, order, scripts, tmp_path):
    import measure

    args = settings(repeats=2, warm_ups=1, alone=alone)
    cases = [measure.Case(name, partial(note, tmp_path / "order", name), calls=10) for name in "ab"]
    results = measure.measure(cases, args)
    assert (tmp_path / "order").read_text() == order
    assert [(result.value[0], len(result.seconds)) for result in results] == [("a", 2), ("b", 2)]
    for result in results:
        assert result.seconds[-1] < result.value[1], "the time of one of ten calls is less than that of all"


def test_memory_is_measured_and_too_little_of_it_is_a_result(scripts, capfd):
    import measure

    args = settings(memory_limit=1.5)
    cases = [measure.Case(f"{gib} GiB", partial(needing, gib)) for gib in (1, 2)]
    fits, does_not = measure.measure(cases, args)
    assert (fits.peak - fits.baseline) / 2**30 == pytest.approx(1, abs=0.1)
    assert (fits.failure, does_not.failure) == (None, "out of memory at 1.5 GiB")
    measure.print_table([does_not, fits], tokens=1)
    assert re.search(r"^2 GiB +out of memory at 1.5 GiB\n1 GiB  [ \d.-]+$", capfd.readouterr().out, re.MULTILINE)


def test_an_error_is_no_result(scripts, capfd):
    import measure

    args = settings()
    with pytest.raises(SystemExit, match="c: failed with the error above"):
        measure.measure([measure.Case("c", fail)], args)
    assert "ValueError: no such model" in capfd.readouterr().err


def gpu_script(*options: str, status: int = 0) -> str:
    return call(["bash", "benchmarks/gpu.sh", "dry_run=1", f"python={sys.executable}", *options], status)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_gpu_script_runs_each_step_with_flags_that_exist(scripts, tmp_path, device):
    import attention
    import fairseq_train
    import training_step

    from fairseq_poolingformer.cli import doctor

    parsers = {
        "attention": attention.parser,
        "training_step": training_step.parser,
        "fairseq_train": fairseq_train.parser,
    }
    steps = "install,doctor,tests,attention,training,training_16_bit,training_dropout,fairseq,demo_model"
    output = gpu_script(f"out={tmp_path / 'out'}", f"steps={steps}", f"wheels={tmp_path}", f"device={device}")
    blocks = dict(block.split("\n", 1) for block in output.split("# ")[1:])
    assert ",".join(blocks) == steps
    assert not (tmp_path / "out").exists()
    found = {}
    for step, text in blocks.items():
        words = shlex.split(text.replace("\\\n", " "))
        if words[1].startswith("benchmarks/") and (name := Path(words[1]).stem) in parsers:
            found[step] = parsers[name]().parse_args(words[2:])
            assert found[step].device == device
        if "doctor" in words:  # with a device that is there
            found[step] = doctor.make_parser().parse_args([word.replace("cuda", "cpu") for word in words[4:]])
    assert found["doctor"].device == "cpu"
    assert found["attention"].passes == ["forward", "both"]
    assert found["training"].systems == [
        "huggingface-led",
        "led",
        "poolingformer",
        *["flex"] * (device == "cuda"),
        "sdpa",
    ]
    assert found["training"].source_length == found["attention"].length == 16384
    assert found["training_16_bit"].peer_precision == "weights"
    assert found["training_dropout"].attention_dropout == 0.1
    assert found["fairseq"].dtypes == (["float32", "bfloat16", "float16"] if device == "cuda" else ["bfloat16"])


def test_the_gpu_script_refuses_what_it_cannot_do(tmp_path):
    assert "give out=" in gpu_script(status=1)
    assert "steps= must be some of" in gpu_script("out=x", "steps=tests,trainings", status=1)
    assert "needs wheels=, a folder" in gpu_script("out=x", "steps=install", f"wheels={tmp_path / 'none'}", status=1)


def test_trainings_with_other_losses_are_not_accepted(scripts):
    import fairseq_train

    losses = [4.0, 0.5, *[1.5] * 10]  # 1.625 on average
    expected = {update: {"loss": loss, "gnorm": 8.0} for update, loss in enumerate(losses, 1)}

    def compared(gnorm=8.0, **changes):
        actual = {update: {**row, "loss": changes.get(f"u{update}", row["loss"])} for update, row in expected.items()}
        actual[1]["gnorm"] = gnorm
        return fairseq_train.compare(expected, actual)

    assert compared() == (0.0, 0.0, 0.0)
    found = compared(gnorm=8.16, u1=4.065, u3=1.5 - 0.0325)
    assert found == pytest.approx((0.02, 0.002, 0.04))
    assert fairseq_train.is_allowed(*found, "bfloat16")
    assert not fairseq_train.is_allowed(*found, "float16")
    for wrong in (
        {"gnorm": 8.32},  # 4 %, 3 % are allowed
        {"u1": 4.13},  # 8 % at one update, 6 % are allowed
        {f"u{n}": 1.56 for n in range(3, 13)},  # 3.7 % at the end, 3 % are allowed
        {"u2": float("nan")},
        {"gnorm": float("nan")},
    ):
        assert not fairseq_train.is_allowed(*compared(**wrong), "bfloat16"), wrong

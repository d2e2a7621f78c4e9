import argparse
import importlib
import json
import logging
import re
import shlex
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from fairseq_poolingformer import band
from tests.forked_python import PYTHON
from tests.lab import ROOT, call
from tests.text.tiny_gpt2 import write_vocabulary


@pytest.fixture
def scripts(monkeypatch):
    """The benchmarks' folder on the path, as it is when one is run; the log of this process stays as it is."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "gpu")
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def run(script: str, *arguments: object, status: int = 0) -> str:
    """Run a benchmark with one thread; both streams."""
    return call([PYTHON, f"benchmarks/{script}.py", *arguments], status)


def tables(output: str) -> list[dict[str, dict[str, float]]]:
    """Rows of every table by name, each as heading -> number."""
    parsed: list[dict[str, dict[str, float]]] = []
    heads: list[str] = []
    for line in output.splitlines():
        cells = re.split(r"\s{2,}", line)
        if "least" in cells and not cells[0]:
            heads = cells[1:]
            parsed.append({})
        elif heads and len(cells) == len(heads) + 1:
            parsed[-1][cells[0]] = dict(zip(heads, map(float, cells[1:]), strict=True))
    return parsed


def assert_measured(rows: dict[str, dict[str, float]]) -> None:
    """Times, memory and ratios of every row go together; the first row is the peer."""
    peer = next(iter(rows.values()))
    for row in rows.values():
        assert 0 < row["least"] <= row["s"] <= row["greatest"]
        assert row["peak GiB"] > row["beyond model"] >= 0
        assert row["× faster"] == pytest.approx(peer["s"] / row["s"], rel=0.05, abs=0.02)
        assert row["× smaller"] == pytest.approx(peer["peak GiB"] / row["peak GiB"], abs=0.04)


ONCE = ("--repeats", 1, "--warm-ups", 0, "--threads", 1)


@pytest.mark.full
def test_attention():
    parts = ("levels", "keys", "disentangled")
    output = run("attention", "--length", 200, "--longest-dense", 100, "--parts", *parts, *ONCE)
    assert re.search(r"^a product of 4096 × 768 by 768 × 768: [1-9]\d* GFLOP/s$", output, re.MULTILINE)
    levels, keys, disentangled = tables(output)
    assert next(iter(keys)) == "window of 256"
    assert next(iter(levels)) == "level one", "no unfolding of half a window, no full attention above --longest-dense"
    assert list(disentangled) == ["level one", "level one, disentangled"], "no full attention above --longest-dense"
    assert_measured(levels)
    assert_measured(keys)
    assert_measured(disentangled)


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
        visible = visible_pairs(window, pooling, 1, 0, 4096, keys)[0, middle].sum(1).float().mean().item()
        assert counts[name] == pytest.approx(7 * 4096 * 768 * visible, rel=0.005)
        assert forward[name + attention.FLEX] == pytest.approx(2 * 4096 * 768 * visible, rel=0.005)
    full, projection = 4096 * 4096 * 768, 4096 * 768 * 768
    assert forward["full attention"] == 2 * full + 4 * projection
    assert counts["full attention"] == 7 * full + 3 * 4 * projection


TINY = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2} | {
    "vocab_size": 30100,
    "initializer_range": 0.2,
}


@pytest.mark.full
def test_preprocessing(tmp_path):
    lines = [
        json.dumps({"article_text": ["the long document ."] * n, "abstract_text": ["attention"]}) for n in (1, 2, 9)
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    output = run("preprocessing", tmp_path / "lines.jsonl", "--gpt2-bpe", write_vocabulary(tmp_path / "bpe"))
    assert re.search(r"^fairseq: [\d.]+ CPU seconds, .* documents a second$", output, re.MULTILINE)
    assert "the same ids in 3 of 3 documents" in output


@pytest.fixture
def hosts(scripts, monkeypatch):
    """The benchmark of whole models, with small ones in the place of two."""
    module = importlib.import_module("hosts")
    special = {f"{token}_token_id": 0 for token in ("pad", "eos", "bos", "cls", "sep")}
    for name, sizes in (("modernbert-base", special), ("lfm2.5-encoder-350m", {"num_key_value_heads": 2})):
        host = module.HOSTS[name]
        monkeypatch.setitem(module.HOSTS, name, module.Host(host.kind, host.what, host.sizes | TINY | sizes))
    return module


def host_settings(**changed):
    settings = {"device": "cpu", "layers": None, "only_windows": False, "implementations": ["band"]}
    return argparse.Namespace(**settings | changed)


@pytest.mark.full
def test_hosts():
    sizes = ("--layers", 2, "--lengths", 64, "--repeats", 1, "--warm-ups", 0, "--thread-counts", 1)
    output = run("hosts", *sizes, "--implementations", "sdpa", "band")  # FlexAttention compiles for minutes
    for table in (measured := tables(output)):
        assert list(table) == ["sdpa", "band"]
        assert_measured(table)
    assert len(measured) == 2
    seconds = r" [\d.e+-]+ \[[\d.e+-]+, [\d.e+-]+\], [\d.]+ \|"
    for line, name in zip(output.splitlines()[-2:], ("forward", "step"), strict=True):
        start = rf"\| modernbert-base \| 2 \| float32 \| 1 \| {name} \| 64 \|"
        assert re.fullmatch(start + seconds + r" – \|" + seconds, line)


def test_hosts_have_the_sizes_of_the_published_models(scripts):
    """Parameters in millions, without heads, as the models' cards count them."""
    hosts = importlib.import_module("hosts")
    published = {
        **{"modernbert-base": 149, "embeddinggemma-300m": 303, "ultrabert-150m": 150, "eurobert-210m": 210},
        **{"lfm2.5-encoder-350m": 354, "gemma3-270m": 268, "mistral-7b": 7110, "qwen3-0.6b": 596},
    }
    assert published.keys() == hosts.HOSTS.keys() - {"embeddinggemma-2"}, "its sizes are transformers' defaults"
    for name, millions in published.items():
        with torch.device("meta"):
            model = AutoModel.from_config(hosts.configuration(host_settings(), name))
        assert sum(x.numel() for x in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.015), name


def test_the_encoder_without_windows_reads_both_directions(hosts):
    model = hosts.build_model(hosts.configuration(host_settings(), "lfm2.5-encoder-350m"), "sdpa", "float32", "cpu")
    tokens = torch.arange(10, 40)[None]
    others = tokens.index_fill(1, torch.tensor([29]), 5)
    with torch.no_grad():
        before, after = (model(x).last_hidden_state[0, 0] for x in (tokens, others))
    assert not torch.equal(before, after)


def test_hosts_are_not_timed_where_band_is_wrong(hosts, monkeypatch):
    assert hosts.check(host_settings(), "modernbert-base", "float32") == ["band"]
    attention = band.band_attention
    monkeypatch.setattr(band, "band_attention", lambda *tensors, **arguments: 1.1 * attention(*tensors, **arguments))
    with pytest.raises(SystemExit, match="modernbert-base: band: differs by"):
        hosts.check(host_settings(), "modernbert-base", "float32")


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


@pytest.mark.full
def test_passkey(tmp_path):
    sizes = ("--width", 32, "--layers", 3, "--lengths", 64, 100, "--start-updates", 2, "--updates", 2)
    arguments = ("passkey", "--output-folder", tmp_path, *sizes, "--documents", 3, "--seeds", 1, 2)
    output = run(*arguments, "--systems", "one-softmax-global", "full")
    *_, one_softmax, full = output.splitlines()
    for line, name in ((one_softmax, "one-softmax-global"), (full, "full")):
        assert re.fullmatch(name + r"( +\d+ \[\d+, \d+\]){2} +\d+", line)
    figure = tmp_path / "figure.png"
    again = run(*arguments, "--systems", "full", "--figure", figure)
    assert again.splitlines()[-1] == full, "nothing is trained again"
    assert figure.read_bytes().startswith(b"\x89PNG")


def allocate(gib: float) -> float:
    return float(torch.ones(int(gib * 2**28))[-1])


def needing(gib: float):
    """A case that needs memory."""
    return partial(allocate, gib)


@pytest.mark.full
def test_memory_is_measured_and_too_little_of_it_is_a_result(scripts, capfd):
    import measure

    settings = {"device": "cpu", "threads": 1, "repeats": 1, "warm_ups": 0, "allocator": "glibc", "alone": False}
    cases = [measure.Case(f"{gib} GiB", partial(needing, gib)) for gib in (1, 3)]  # torch with CUDA takes one itself
    fits, does_not = measure.measure(cases, argparse.Namespace(**settings, memory_limit=3))
    assert (fits.peak - fits.baseline) / 2**30 == pytest.approx(1, abs=0.1)
    assert (fits.failure, does_not.failure) == (None, "out of memory at 3.0 GiB")
    measure.print_table([does_not, fits], tokens=1)
    assert re.search(r"^3 GiB +out of memory at 3.0 GiB\n1 GiB  [ \d.-]+$", capfd.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_gpu_script_runs_each_step_with_flags_that_exist(scripts, tmp_path, device):
    from fairseq_poolingformer.cli import doctor

    steps = "install,tests,layers,doctor,attention,hosts,fairseq,compiled,demo_model"
    words = [f"python={sys.executable}", f"out={tmp_path / 'out'}", f"steps={steps}", f"wheels={tmp_path}"]
    output = call(["bash", "benchmarks/gpu.sh", "dry_run=1", *words, f"device={device}"])
    blocks = dict(block.split("\n", 1) for block in output.split("# ")[1:])
    assert ",".join(blocks) == steps
    assert not (tmp_path / "out").exists()
    args = {}
    for step, text in blocks.items():
        words = shlex.split(text.replace("\\\n", " ").strip().splitlines()[0])  # of two the first
        name = Path(words[1]).stem
        if words[1].startswith("benchmarks/") and name in ("attention", "hosts", "fairseq_train", "layer_times"):
            args[step] = importlib.import_module(name).parser().parse_args(words[2:])
            assert args[step].device == device
        if "doctor" in words:  # with a device that is there
            args[step] = doctor.make_parser().parse_args([word.replace("cuda", "cpu") for word in words[4:]])
    assert args["doctor"].device == "cpu"
    assert args["attention"].passes == ["forward", "both"]
    assert (args["hosts"].lengths, args["hosts"].dtypes) == ([16384], ["bfloat16"])
    assert args["attention"].length == args["layers"].lengths[0] == 16384
    assert args["compiled"].compile_layers == "reduce-overhead"
    assert args["fairseq"].dtypes == (["float32", "bfloat16", "float16"] if device == "cuda" else ["bfloat16"])


def test_times_of_layers_on_a_cpu():
    options = "--device", "cpu", "--lengths", 700, "--dim", 64, "--seconds", 60
    rows = run("gpu/layer_times", *options).splitlines()[2:]
    assert len(rows) == 2 + 8
    assert all(re.search(r"^   700  .*  +[\d.]+ +nan +[\d.]+ +nan +0$", row) for row in rows)


def test_trainings_with_other_losses_are_not_accepted(scripts):
    import fairseq_train

    losses = [4.0, 0.5, *[1.5] * 10]  # 1.625 on average
    expected = {update: {"loss": loss, "gnorm": 8.0} for update, loss in enumerate(losses, 1)}

    def compared(gnorm=8.0, **changes):
        actual = {update: {**row, "loss": changes.get(f"u{update}", row["loss"])} for update, row in expected.items()}
        actual[1]["gnorm"] = gnorm
        return fairseq_train.compare(expected, actual)

    assert compared() == (0.0, 0.0, 0.0)
    differences = compared(gnorm=8.16, u1=4.065, u3=1.5 - 0.0325)
    assert differences == pytest.approx((0.02, 0.002, 0.04))
    assert fairseq_train.is_allowed(*differences, "bfloat16")
    assert not fairseq_train.is_allowed(*differences, "float16")
    for wrong in (
        {"gnorm": 8.32},  # 4 %, 3 % are allowed
        {"u1": 5.0},  # 62 % at one update, 60 % are allowed
        {f"u{n}": 1.56 for n in range(3, 13)},  # 3.7 % at the end, 3 % are allowed
        {"u2": float("nan")},
        {"gnorm": float("nan")},
    ):
        assert not fairseq_train.is_allowed(*compared(**wrong), "bfloat16"), wrong

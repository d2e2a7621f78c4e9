"""Checkpoints in the layout of the published adaptive span, against its equations written out on that layout."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.char_lm import eval_lm
from fairseq_poolingformer.cli import convert
from preprocess.char_lm import make_folder

LAYERS, WIDTH, HEADS, FFN, SPAN, RAMP = 2, 8, 2, 12, 20, 6
LETTERS = np.frombuffer(b"ba\nc d", np.uint8)


def published_state(symbols, seed=0, prefix="module."):
    """Random parameters with the names and shapes of facebookresearch/adaptive-span's TransformerSeq."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return 0.4 * torch.randn(shape, generator=generator)

    state = {"in_emb.weight": random(symbols, WIDTH), "out_emb.weight": random(symbols, WIDTH)}
    state |= {"out_emb.bias": random(symbols), "key_pe": random(1, WIDTH // HEADS, SPAN)}
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        state |= {f"{name}attn.proj_{part}.weight": random(WIDTH, WIDTH) for part in ("query", "out", "val", "key")}
        state |= {f"{name}norm{n}.weight": 1 + random(WIDTH) for n in (1, 2)}
        state |= {f"{name}norm{n}.bias": random(WIDTH) for n in (1, 2)}
        state |= {f"{name}ff.fc1.weight": random(FFN, WIDTH), f"{name}ff.fc1.bias": random(FFN)}
        state |= {f"{name}ff.fc2.weight": random(WIDTH, FFN), f"{name}ff.fc2.bias": random(WIDTH)}
        mask = f"{name}attn.attn.adaptive_span._mask."
        state |= {f"{mask}current_val": torch.rand(HEADS, 1, 1, generator=generator)}
        state |= {f"{mask}mask_template": torch.linspace(1 - SPAN, 0, steps=SPAN)}
    return {prefix + name: value for name, value in state.items()}


def forward(p, ids):
    """Log-probabilities (n, V): each position attends to SPAN keys before it, the cache of zeros among them."""
    p = {name.removeprefix("module."): value.double() for name, value in p.items()}
    h, width = p["in_emb.weight"][ids], WIDTH // HEADS
    for layer in range(LAYERS):
        q, k, v = (h @ p[f"layers.{layer}.attn.proj_{part}.weight"].t() for part in ("query", "key", "val"))
        k, v = (F.pad(x, (0, 0, SPAN, 0)) for x in (k, v))
        z = p[f"layers.{layer}.attn.attn.adaptive_span._mask.current_val"]
        out = []
        for i in range(len(ids)):
            heads = []
            for head in range(HEADS):
                own = slice(head * width, (head + 1) * width)
                keys = k[i : i + SPAN, own]  # the last of them is the position before i
                scores = (q[i, own] @ keys.t() + q[i, own] @ p["key_pe"][0]) / math.sqrt(width)
                mask = ((torch.arange(1 - SPAN, 1) + z[head, 0, 0] * SPAN) / RAMP + 1).clamp(0, 1)
                weights = scores.softmax(-1) * mask
                heads.append(weights / weights.sum() @ v[i : i + SPAN, own])
            out.append(torch.cat(heads))
        h = h + torch.stack(out) @ p[f"layers.{layer}.attn.proj_out.weight"].t()
        h = F.layer_norm(h, (WIDTH,), p[f"layers.{layer}.norm1.weight"], p[f"layers.{layer}.norm1.bias"])
        hidden = (h @ p[f"layers.{layer}.ff.fc1.weight"].t() + p[f"layers.{layer}.ff.fc1.bias"]).relu()
        h = h + hidden @ p[f"layers.{layer}.ff.fc2.weight"].t() + p[f"layers.{layer}.ff.fc2.bias"]
        h = F.layer_norm(h, (WIDTH,), p[f"layers.{layer}.norm2.weight"], p[f"layers.{layer}.norm2.bias"])
    return (h @ p["out_emb.weight"].t() + p["out_emb.bias"]).log_softmax(-1)


def folder_of(tmp_path, text):
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], tmp_path / "data", held_out=40)
    return tmp_path / "data"


def converted(tmp_path, data, state, *flags):
    torch.save({"iter_no": 3, "model": state, "logger": {"step": [1]}, "optimizer": {}}, tmp_path / "published.pt")
    return convert.main(["from-adaptive-span", *map(str, (tmp_path / "published.pt", data, tmp_path / "out")), *flags])


@pytest.mark.parametrize("prefix", ["module.", ""])
@pytest.mark.parametrize(
    ("text", "order"),
    [
        (LETTERS[np.random.default_rng(0).integers(0, 6, 300)].tobytes(), None),
        (b"  b a  " + b"bacd " * 60, b"b acd\n"),  # as text8: no newline, and the first spaces are no symbols
    ],
)
def test_probabilities_are_those_of_the_published_model(tmp_path, text, order, prefix):
    order = order or bytes(dict.fromkeys(text[:-80]))
    data, state = folder_of(tmp_path, text), published_state(len(order), prefix=prefix)
    assert converted(tmp_path, data, state, "--span-ramp", str(RAMP)) == 0
    read = b"\n" + text[-40:]  # a text begins as a line does
    ids = torch.tensor([order.index(byte) for byte in read])
    log_probabilities = forward(state, ids[:-1])
    bits = -log_probabilities[torch.arange(40), ids[1:]].mean().item() / math.log(2)
    evaluate = [str(data), "--path", str(tmp_path / "out" / "model.pt"), "--device", "cpu"]
    assert eval_lm.main([*evaluate, "--output", str(tmp_path / "result.json")]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["bpc"] == pytest.approx(bits, abs=1e-5)


def test_fairseq_prints_nothing(tmp_path):
    data = folder_of(tmp_path, LETTERS[np.arange(300) % 6].tobytes())
    torch.save({"model": published_state(6)}, tmp_path / "published.pt")
    arguments = ["from-adaptive-span", *map(str, (tmp_path / "published.pt", data, tmp_path / "out"))]
    command = [sys.executable, "-m", convert.__name__, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("wrote ")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("module.layers.1.norm2.bias"), "no parameter layers.1.norm2.bias"),
        (lambda state: state.pop("module.in_emb.weight"), "no parameter 'in_emb.weight': not a character model"),
        (lambda state: state.update({"module.layers.0.attn.attn.persistent_memory.key": torch.ones(1)}), "persistent"),
        (lambda state: state.update({"module.layers.0.other": torch.ones(1)}), "no place for layers.0.other"),
        (lambda state: state.update(published_state(9)), "the model has 9 symbols, but train of the data folder has 6"),
        (
            lambda state: state["module.key_pe"][0, 0].fill_(torch.nan),
            "20 of 80 numbers of module.key_pe are NaN or inf",
        ),
    ],
)
def test_other_checkpoints_are_refused(tmp_path, capsys, change, message):
    data, state = folder_of(tmp_path, LETTERS[np.arange(300) % 6].tobytes()), published_state(6)
    change(state)
    assert converted(tmp_path, data, state) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (b"text", "is not a checkpoint. It begins with b'text'"),
        ({"model": 3}, "is not a checkpoint of adaptive-span's main.py"),
    ],
)
def test_files_that_are_no_checkpoints_are_refused(tmp_path, capsys, content, message):
    file = tmp_path / "file.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        torch.save(content, file)
    assert convert.main(["from-adaptive-span", str(file), str(tmp_path), str(tmp_path / "out")]) == 1
    assert f"{file} {message}" in capsys.readouterr().err

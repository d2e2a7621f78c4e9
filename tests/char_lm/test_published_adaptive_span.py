"""adaptive_span_lm against the equations of the published adaptive span, written out on the layout of its code."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.cli import eval_lm
from tests.char_lm import published

LAYERS, WIDTH, HEADS, FFN, SPAN, RAMP = 2, 8, 2, 12, 20, 6
LETTERS = np.frombuffer(b"ba\nc d", np.uint8)


def published_state(symbols, seed=0):
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
    return state


def forward(p, ids):
    """Log-probabilities (n, V): each position attends to SPAN keys before it, the cache of zeros among them."""
    p = {name: value.double() for name, value in p.items()}
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


NAMES = {
    "attn.proj_query.weight": "attention.q_proj.weight",
    "attn.proj_key.weight": "attention.k_proj.weight",
    "attn.proj_val.weight": "attention.v_proj.weight",
    "attn.proj_out.weight": "attention.out_proj.weight",
    "norm1.weight": "attention_norm.weight",
    "norm1.bias": "attention_norm.bias",
    "ff.fc1.weight": "feed_forward.fc1.weight",
    "ff.fc1.bias": "feed_forward.fc1.bias",
    "ff.fc2.weight": "feed_forward.fc2.weight",
    "ff.fc2.bias": "feed_forward.fc2.bias",
    "norm2.weight": "feed_forward_norm.weight",
    "norm2.bias": "feed_forward_norm.bias",
}


def converted(path, data, state, order):
    """The published parameters as a checkpoint of adaptive_span_lm."""
    matrices = (state[name] for name in ("in_emb.weight", "out_emb.weight", "out_emb.bias"))
    ours = published.embeddings(*matrices, order, before=order.index(b"\n"))  # a text begins as a line does
    ours |= published.renamed_layers(state, NAMES, LAYERS)
    ours["decoder.positions.weight"] = state["key_pe"][0].t().flip(0).contiguous()  # from the farthest distance to 1
    for layer in range(LAYERS):
        span = state[f"layers.{layer}.attn.attn.adaptive_span._mask.current_val"]
        ours[f"decoder.spans.z.{layer}"] = span.flatten()
    sizes = {"tokens_per_sample": 512, "eval_context": SPAN, "max_span": SPAN, "span_ramp": RAMP}
    return published.write(path, data, "adaptive_span_lm", ours, LAYERS, HEADS, **sizes)


def test_probabilities_are_those_of_the_published_model(tmp_path):
    """It numbers bytes in the order in which they first occur in the text."""
    text = LETTERS[np.random.default_rng(0).integers(0, 6, 300)].tobytes()
    order = bytes(dict.fromkeys(text))
    data, state = published.folder_of(tmp_path, text, held_out=40), published_state(len(order))
    path = converted(tmp_path / "model.pt", data, state, order)
    ids = torch.tensor([order.index(byte) for byte in b"\n" + text[-40:]])
    log_probabilities = forward(state, ids[:-1])
    bits = -log_probabilities[torch.arange(40), ids[1:]].mean().item() / math.log(2)
    evaluate = [str(data), "--path", str(path), "--device", "cpu"]
    assert eval_lm.main([*evaluate, "--output", str(tmp_path / "result.json")]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["bpc"] == pytest.approx(bits, abs=1e-5)

"""transformer_xl_lm against the equations of the published Transformer-XL, written out on the layout of its code."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.cli import eval_lm
from tests.char_lm import published

LAYERS, WIDTH, HEADS, FFN = 2, 8, 2, 12
EVALUATION = ("--memory-length", "9", "--same-length", "--clamp-distances", "5")


def published_state(symbols, seed=0, tied=True):
    """Random parameters with the names and shapes of kimiyoung/transformer-xl's MemTransformerLM."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return 0.4 * torch.randn(shape, generator=generator)

    state = {"word_emb.emb_layers.0.weight": random(symbols, WIDTH)}
    state |= {"r_w_bias": random(HEADS, WIDTH // HEADS), "r_r_bias": random(HEADS, WIDTH // HEADS)}
    for layer in range(LAYERS):
        attention, feed = f"layers.{layer}.dec_attn.", f"layers.{layer}.pos_ff."
        state |= {
            f"{attention}qkv_net.weight": random(3 * WIDTH, WIDTH),
            f"{attention}o_net.weight": random(WIDTH, WIDTH),
        }
        state |= {f"{attention}r_net.weight": random(WIDTH, WIDTH)}
        state |= {f"{feed}CoreNet.0.weight": random(FFN, WIDTH), f"{feed}CoreNet.0.bias": random(FFN)}
        state |= {f"{feed}CoreNet.3.weight": random(WIDTH, FFN), f"{feed}CoreNet.3.bias": random(WIDTH)}
        for norm in (attention, feed):
            state |= {f"{norm}layer_norm.weight": 1 + random(WIDTH), f"{norm}layer_norm.bias": random(WIDTH)}
    state["crit.out_layers.0.weight"] = state["word_emb.emb_layers.0.weight"] if tied else random(symbols, WIDTH)
    state["crit.out_layers.0.bias"] = random(symbols)
    state["pos_emb.inv_freq"] = 1 / 10_000 ** (torch.arange(0.0, WIDTH, 2.0) / WIDTH)
    return state


def forward(p, ids, memory, clamp):
    """Log-probabilities (n, V): a position sees ``memory`` positions, itself the last; distances end at ``clamp``."""
    p = {name: value.double() for name, value in p.items()}
    h, width = math.sqrt(WIDTH) * p["word_emb.emb_layers.0.weight"][ids], WIDTH // HEADS
    angles = torch.arange(len(ids)).clamp(max=clamp).double()[:, None] * p["pos_emb.inv_freq"]
    sinusoids = torch.cat([angles.sin(), angles.cos()], 1)  # by distance
    for layer in range(LAYERS):
        attention, feed = f"layers.{layer}.dec_attn.", f"layers.{layer}.pos_ff."
        q, k, v = (h @ p[f"{attention}qkv_net.weight"].t()).chunk(3, 1)
        r = sinusoids @ p[f"{attention}r_net.weight"].t()
        out = []
        for i in range(len(ids)):
            heads, first = [], max(0, i - memory + 1)
            for head in range(HEADS):
                own = slice(head * width, (head + 1) * width)
                scores = (q[i, own] + p["r_w_bias"][head]) @ k[first : i + 1, own].t()
                scores = scores + (q[i, own] + p["r_r_bias"][head]) @ r[: i + 1 - first, own].flip(0).t()
                heads.append((scores / math.sqrt(width)).softmax(0) @ v[first : i + 1, own])
            out.append(torch.cat(heads))
        h = h + torch.stack(out) @ p[f"{attention}o_net.weight"].t()
        h = F.layer_norm(h, (WIDTH,), p[f"{attention}layer_norm.weight"], p[f"{attention}layer_norm.bias"])
        hidden = (h @ p[f"{feed}CoreNet.0.weight"].t() + p[f"{feed}CoreNet.0.bias"]).relu()
        h = h + hidden @ p[f"{feed}CoreNet.3.weight"].t() + p[f"{feed}CoreNet.3.bias"]
        h = F.layer_norm(h, (WIDTH,), p[f"{feed}layer_norm.weight"], p[f"{feed}layer_norm.bias"])
    return (h @ p["crit.out_layers.0.weight"].t() + p["crit.out_layers.0.bias"]).log_softmax(-1)


NAMES = {
    "dec_attn.o_net.weight": "attention.out_proj.weight",
    "dec_attn.r_net.weight": "positions.r_proj.weight",
    "dec_attn.layer_norm.weight": "attention_norm.weight",
    "dec_attn.layer_norm.bias": "attention_norm.bias",
    "pos_ff.CoreNet.0.weight": "feed_forward.fc1.weight",
    "pos_ff.CoreNet.0.bias": "feed_forward.fc1.bias",
    "pos_ff.CoreNet.3.weight": "feed_forward.fc2.weight",
    "pos_ff.CoreNet.3.bias": "feed_forward.fc2.bias",
    "pos_ff.layer_norm.weight": "feed_forward_norm.weight",
    "pos_ff.layer_norm.bias": "feed_forward_norm.bias",
}


def converted(path, data, state, order, tied, memory_length=7):
    """The published parameters as a checkpoint of transformer_xl_lm."""
    names = ("word_emb.emb_layers.0.weight", "crit.out_layers.0.weight", "crit.out_layers.0.bias")
    ours = published.embeddings(*(state[name] for name in names), order, before=0)
    if tied:
        ours["decoder.output_projection.weight"] = ours["decoder.embed_tokens.weight"]
    ours |= published.renamed_layers(state, NAMES, LAYERS)
    for layer in range(LAYERS):
        name = f"decoder.layers.{layer}."
        for letter, part in zip("qkv", state[f"layers.{layer}.dec_attn.qkv_net.weight"].chunk(3), strict=True):
            ours[f"{name}attention.{letter}_proj.weight"] = part.clone()
        biases = {"content_bias": state["r_w_bias"], "position_bias": state["r_r_bias"]}
        ours |= {f"{name}positions.{bias}": value for bias, value in biases.items()}
    sizes = {"tokens_per_sample": memory_length, "eval_context": 2 * memory_length, "memory_length": memory_length}
    own = {**sizes, "share_decoder_input_output_embed": tied}
    return published.write(path, data, "transformer_xl_lm", ours, LAYERS, HEADS, **own)


@pytest.mark.parametrize(
    ("letters", "weights", "tied"),
    [("ba\nc d", (3, 1, 2, 1, 5, 2), True), ("ba\nc d", (1, 1, 1, 1, 1, 1), False), ("xyz ", (1, 2, 3, 4), True)],
)
def test_probabilities_are_those_of_the_published_evaluation(tmp_path, letters, weights, tied):
    """With blocks that are shorter than the memory; symbols are numbered by their counts, newlines left out."""
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list(letters), 400, p=np.array(weights) / sum(weights))).encode()
    order = bytes(byte for byte, _ in Counter(text.replace(b"\n", b"")).most_common())
    data, state = published.folder_of(tmp_path, text, held_out=60), published_state(len(order), tied=tied)
    path = converted(tmp_path / "model.pt", data, state, order, tied)
    read = text[-60:].replace(b"\n", b"")
    ids = torch.tensor([order.index(byte) for byte in order[:1] + read])  # the first byte follows the likeliest one
    log_probabilities = forward(state, ids[:-1], memory=9, clamp=5)
    bits = -log_probabilities[torch.arange(len(read)), ids[1:]].mean().item() / math.log(2)
    command = [str(data), "--path", str(path), "--device", "cpu", *EVALUATION]
    assert eval_lm.main([*command, "--skip-newlines", "--output", str(tmp_path / "result.json")]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["scored"] == len(read)
    assert result["bpc"] == pytest.approx(bits, abs=1e-5)

"""State dicts in the layout of the published Transformer-XL, against its equations written out on that layout."""

import json
import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.char_lm import eval_lm
from fairseq_poolingformer.char_lm import from_transformer_xl as transformer_xl
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE
from preprocess.char_lm import make_folder

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


def folder_of(tmp_path, text):
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], tmp_path / "data", held_out=60)
    return tmp_path / "data"


def converted(tmp_path, data, state, *flags):
    torch.save(state, tmp_path / "state.pt")
    return convert.main(["from-transformer-xl", *map(str, (tmp_path / "state.pt", data, tmp_path / "out")), *flags])


@pytest.mark.parametrize(
    ("letters", "weights", "tied"),
    [("ba\nc d", (3, 1, 2, 1, 5, 2), True), ("ba\nc d", (1, 1, 1, 1, 1, 1), False), ("xyz ", (1, 2, 3, 4), True)],
)
def test_probabilities_are_those_of_the_published_evaluation(tmp_path, capsys, letters, weights, tied):
    """With blocks that are shorter than the memory; symbols are numbered by their counts, newlines left out."""
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list(letters), 400, p=np.array(weights) / sum(weights))).encode()
    order = bytes(byte for byte, _ in Counter(text.replace(b"\n", b"")).most_common())
    data, state = folder_of(tmp_path, text), published_state(len(order), tied=tied)
    assert converted(tmp_path, data, state, "--memory-length", "7") == 0
    told = capsys.readouterr().out
    assert "--memory-length 2100 --same-length --clamp-distances 820" in told
    assert ("--skip-newlines" in told) == ("\n" in letters)
    read = text[-60:].replace(b"\n", b"")
    ids = torch.tensor([order.index(byte) for byte in order[:1] + read])  # the first byte follows the likeliest one
    log_probabilities = forward(state, ids[:-1], memory=9, clamp=5)
    bits = -log_probabilities[torch.arange(len(read)), ids[1:]].mean().item() / math.log(2)
    command = [str(data), "--path", str(tmp_path / "out" / "model.pt"), "--device", "cpu", *EVALUATION]
    assert eval_lm.main([*command, "--skip-newlines", "--output", str(tmp_path / "result.json")]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["scored"] == len(read)
    assert result["bpc"] == pytest.approx(bits, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("layers.1.pos_ff.layer_norm.bias"), "no parameter layers.1.pos_ff.layer_norm.bias"),
        (lambda state: state.pop("r_w_bias"), "no parameter r_w_bias"),
        (lambda state: state.update({"word_emb.emb_projs.0": torch.ones(1)}), "a word model"),
        (lambda state: state.update({"r_emb": torch.ones(1)}), "no place for r_emb"),
        (lambda state: state.update(published_state(9)), "the model has 9 symbols, but the data folder has 5"),
        (lambda state: state.update({"step": 3}), "is not a state dict"),
        (lambda state: state["r_w_bias"][0].fill_(torch.inf), "4 of 8 numbers of r_w_bias are NaN or infinite"),
    ],
)
def test_other_state_dicts_are_refused(tmp_path, capsys, change, message):
    data, state = folder_of(tmp_path, b"ba\nc d" * 70), published_state(5)
    change(state)
    assert converted(tmp_path, data, state) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class MemTransformerLM(torch.nn.Module):
    """A module with the name of the published one."""


def test_a_whole_module_is_refused_with_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(MemTransformerLM, "__module__", "mem_transformer")
    monkeypatch.setitem(sys.modules, "mem_transformer", sys.modules[__name__])
    torch.save(MemTransformerLM(), tmp_path / "model.pt")
    assert convert.main(["from-transformer-xl", *map(str, (tmp_path / "model.pt", tmp_path, tmp_path / "out"))]) == 1
    assert "torch.save(m.state_dict(), 'state.pt')" in capsys.readouterr().err


def test_symbols_that_are_equally_frequent_are_numbered_as_they_occur(tmp_path):
    """Over all splits together; a byte that only the last has comes after those that are as rare."""
    text = b"ccc\nabab" * 20 + b"za\n" * 8 + b"yx" * 30
    order, newlines = transformer_xl.symbol_order(folder_of(tmp_path, text))
    assert newlines
    counted = Counter(text.replace(b"\n", b"")).most_common()
    assert [symbol - FIRST_BYTE for symbol in order] == [byte for byte, _ in counted]

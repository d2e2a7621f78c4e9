"""transformer_xl_lm and adaptive_span_lm against the equations of the published code, written out on its layout.

Parameters with the published names become a checkpoint of this plugin, whose bits poolingformer eval-lm gives.
"""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.char_lm.models import ARCHITECTURES, DEFAULTS
from fairseq_poolingformer.cli import eval_lm
from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE, NUM_SYMBOLS
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.weights import files
from preprocess.char_lm import make_folder

pytestmark = pytest.mark.full
LAYERS, WIDTH, HEADS, FFN = 2, 8, 2, 12
HEAD_WIDTH = WIDTH // HEADS
SPAN, RAMP = 20, 6
NEVER = -1e4  # bias of symbols that the published model lacks


def randoms(seed=0):
    """A function that draws parameters."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: 0.4 * torch.randn(shape, generator=generator)


def transformer_xl_state(symbols, tied):
    """Random parameters with the names and shapes of kimiyoung/transformer-xl's MemTransformerLM."""
    random = randoms()
    state = {"word_emb.emb_layers.0.weight": random(symbols, WIDTH)}
    state |= {"r_w_bias": random(HEADS, HEAD_WIDTH), "r_r_bias": random(HEADS, HEAD_WIDTH)}
    for layer in range(LAYERS):
        attention, feed = f"layers.{layer}.dec_attn.", f"layers.{layer}.pos_ff."
        state[f"{attention}qkv_net.weight"] = random(3 * WIDTH, WIDTH)
        state |= {f"{attention}{name}_net.weight": random(WIDTH, WIDTH) for name in "or"}
        state |= {f"{feed}CoreNet.0.weight": random(FFN, WIDTH), f"{feed}CoreNet.0.bias": random(FFN)}
        state |= {f"{feed}CoreNet.3.weight": random(WIDTH, FFN), f"{feed}CoreNet.3.bias": random(WIDTH)}
        for norm in (attention, feed):
            state |= {f"{norm}layer_norm.weight": 1 + random(WIDTH), f"{norm}layer_norm.bias": random(WIDTH)}
    state["crit.out_layers.0.weight"] = state["word_emb.emb_layers.0.weight"] if tied else random(symbols, WIDTH)
    state["crit.out_layers.0.bias"] = random(symbols)
    state["pos_emb.inv_freq"] = 1 / 10_000 ** (torch.arange(0.0, WIDTH, 2.0) / WIDTH)
    return state


def adaptive_span_state(symbols):
    """Random parameters with the names and shapes of facebookresearch/adaptive-span's TransformerSeq."""
    random = randoms()
    state = {"in_emb.weight": random(symbols, WIDTH), "out_emb.weight": random(symbols, WIDTH)}
    state |= {"out_emb.bias": random(symbols), "key_pe": random(1, HEAD_WIDTH, SPAN)}
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        state |= {f"{name}attn.proj_{part}.weight": random(WIDTH, WIDTH) for part in ("query", "out", "val", "key")}
        state |= {f"{name}norm{n}.weight": 1 + random(WIDTH) for n in (1, 2)}
        state |= {f"{name}norm{n}.bias": random(WIDTH) for n in (1, 2)}
        state |= {f"{name}ff.fc1.weight": random(FFN, WIDTH), f"{name}ff.fc1.bias": random(FFN)}
        state |= {f"{name}ff.fc2.weight": random(WIDTH, FFN), f"{name}ff.fc2.bias": random(WIDTH)}
        generator = torch.Generator().manual_seed(layer)
        spans = torch.rand(HEADS, 1, 1, generator=generator)
        state[f"{name}attn.attn.adaptive_span._mask.current_val"] = spans
    return state


def by_head(length, attend):
    """(n, C): ``attend(i, columns, head)`` of each position and head, side by side."""
    columns = [slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH) for head in range(HEADS)]
    return torch.stack([torch.cat([attend(i, dims, head) for head, dims in enumerate(columns)]) for i in range(length)])


def feed(h, p, inner, outer, norm):
    """A feed-forward sublayer, the residual connection and the norm after it."""
    hidden = (h @ p[f"{inner}.weight"].t() + p[f"{inner}.bias"]).relu()
    return normed(h + hidden @ p[f"{outer}.weight"].t() + p[f"{outer}.bias"], p, norm)


def normed(h, p, name):
    return F.layer_norm(h, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"])


def transformer_xl(p, ids, memory, clamp):
    """Log-probabilities (n, V): a position sees ``memory`` positions, itself the last; distances end at ``clamp``."""
    h = math.sqrt(WIDTH) * p["word_emb.emb_layers.0.weight"][ids]
    angles = torch.arange(len(ids)).clamp(max=clamp).double()[:, None] * p["pos_emb.inv_freq"]
    sinusoids = torch.cat([angles.sin(), angles.cos()], 1)  # by distance
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        q, k, v = (h @ p[f"{name}dec_attn.qkv_net.weight"].t()).chunk(3, 1)
        r = sinusoids @ p[f"{name}dec_attn.r_net.weight"].t()

        def attend(i, dims, head, q=q, k=k, v=v, r=r):
            begin = max(0, i - memory + 1)
            scores = (q[i, dims] + p["r_w_bias"][head]) @ k[begin : i + 1, dims].t()
            scores = scores + (q[i, dims] + p["r_r_bias"][head]) @ r[: i + 1 - begin, dims].flip(0).t()
            return (scores / math.sqrt(HEAD_WIDTH)).softmax(0) @ v[begin : i + 1, dims]

        h = h + by_head(len(ids), attend) @ p[f"{name}dec_attn.o_net.weight"].t()
        h = normed(h, p, f"{name}dec_attn.layer_norm")
        h = feed(h, p, f"{name}pos_ff.CoreNet.0", f"{name}pos_ff.CoreNet.3", f"{name}pos_ff.layer_norm")
    return (h @ p["crit.out_layers.0.weight"].t() + p["crit.out_layers.0.bias"]).log_softmax(-1)


def adaptive_span(p, ids):
    """Log-probabilities (n, V): each position attends to SPAN keys before it, the cache of zeros among them."""
    h = p["in_emb.weight"][ids]
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        q, k, v = (h @ p[f"{name}attn.proj_{part}.weight"].t() for part in ("query", "key", "val"))
        k, v = (F.pad(x, (0, 0, SPAN, 0)) for x in (k, v))
        z = p[f"{name}attn.attn.adaptive_span._mask.current_val"]

        def attend(i, dims, head, q=q, k=k, v=v, z=z):
            keys = k[i : i + SPAN, dims]  # the last of them is the position before i
            scores = (q[i, dims] @ keys.t() + q[i, dims] @ p["key_pe"][0]) / math.sqrt(HEAD_WIDTH)
            mask = ((torch.arange(1 - SPAN, 1) + z[head, 0, 0] * SPAN) / RAMP + 1).clamp(0, 1)
            weights = scores.softmax(-1) * mask
            return weights / weights.sum() @ v[i : i + SPAN, dims]

        h = h + by_head(len(ids), attend) @ p[f"{name}attn.proj_out.weight"].t()
        h = feed(normed(h, p, f"{name}norm1"), p, f"{name}ff.fc1", f"{name}ff.fc2", f"{name}norm2")
    return (h @ p["out_emb.weight"].t() + p["out_emb.bias"]).log_softmax(-1)


TRANSFORMER_XL = {  # published name: name here
    **{"dec_attn.o_net": "attention.out_proj", "dec_attn.r_net": "positions.r_proj"},
    **{"dec_attn.layer_norm": "attention_norm", "pos_ff.layer_norm": "feed_forward_norm"},
    **{"pos_ff.CoreNet.0": "feed_forward.fc1", "pos_ff.CoreNet.3": "feed_forward.fc2"},
}
ADAPTIVE_SPAN = {
    **{"attn.proj_query": "attention.q_proj", "attn.proj_key": "attention.k_proj"},
    **{"attn.proj_val": "attention.v_proj", "attn.proj_out": "attention.out_proj"},
    **{"norm1": "attention_norm", "norm2": "feed_forward_norm"},
    **{"ff.fc1": "feed_forward.fc1", "ff.fc2": "feed_forward.fc2"},
}


def renamed_layers(state, names):
    return {
        f"decoder.layers.{layer}.{ours}.{kind}": state[f"layers.{layer}.{theirs}.{kind}"]
        for layer in range(LAYERS)
        for theirs, ours in names.items()
        for kind in ("weight", "bias")
        if f"layers.{layer}.{theirs}.{kind}" in state
    }


def embeddings(embedding, output, bias, order, before):
    """Both matrices and the bias, with a row for each symbol here; a text begins behind the symbol ``before``."""
    rows = torch.tensor([FIRST_BYTE + byte for byte in order])

    def placed(values, other):
        return values.new_full((NUM_SYMBOLS, *values.shape[1:]), other).index_copy(0, rows, values)

    inputs = placed(embedding, 0.0)
    inputs[EOS] = embedding[before]
    return {
        "decoder.embed_tokens.weight": inputs,
        "decoder.output_projection.weight": placed(output, 0.0),
        "decoder.output_projection.bias": placed(bias, NEVER),
    }


def folder_of(tmp_path, text, held_out):
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], tmp_path / "data", held_out=held_out)
    return tmp_path / "data"


def evaluated(tmp_path, arch, converted, *flags, **settings):
    """The result of the evaluation of converted parameters as a checkpoint of an architecture."""
    sizes = {"decoder_layers": LAYERS, "decoder_embed_dim": WIDTH, "decoder_ffn_embed_dim": FFN}
    names = {"arch": arch, "task": "char_lm", "criterion": "char_lm", "data": str(tmp_path / "data")}
    settings = {**DEFAULTS, **ARCHITECTURES[arch], **names, **sizes, "decoder_attention_heads": HEADS, **settings}
    files.write_checkpoint(tmp_path / "model.pt", settings, converted)
    command = [str(tmp_path / "data"), "--path", str(tmp_path / "model.pt"), "--device", "cpu", *flags]
    assert eval_lm.main([*command, "--output", str(tmp_path / "result.json")]) == 0
    return json.loads((tmp_path / "result.json").read_text())


def bits(forward, state, ids, **options):
    """The published model's bits of each of the ids but the first."""
    log_probabilities = forward({name: value.double() for name, value in state.items()}, ids[:-1], **options)
    return -log_probabilities[torch.arange(len(ids) - 1), ids[1:]].mean().item() / math.log(2)


@pytest.mark.parametrize(
    ("letters", "weights", "tied"),
    [("ba\nc d", (3, 1, 2, 1, 5, 2), True), ("ba\nc d", (1, 1, 1, 1, 1, 1), False), ("xyz ", (1, 2, 3, 4), True)],
)
def test_probabilities_are_those_of_transformer_xls_evaluation(tmp_path, letters, weights, tied):
    """With blocks that are shorter than the memory; symbols are numbered by their counts, newlines left out."""
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list(letters), 400, p=np.array(weights) / sum(weights))).encode()
    order = bytes(byte for byte, _ in Counter(text.replace(b"\n", b"")).most_common())
    folder_of(tmp_path, text, held_out=60)
    state = transformer_xl_state(len(order), tied)
    names = ("word_emb.emb_layers.0.weight", "crit.out_layers.0.weight", "crit.out_layers.0.bias")
    ours = embeddings(*(state[name] for name in names), order, before=0) | renamed_layers(state, TRANSFORMER_XL)
    if tied:
        ours["decoder.output_projection.weight"] = ours["decoder.embed_tokens.weight"]
    for layer in range(LAYERS):
        name = f"decoder.layers.{layer}."
        for letter, part in zip("qkv", state[f"layers.{layer}.dec_attn.qkv_net.weight"].chunk(3), strict=True):
            ours[f"{name}attention.{letter}_proj.weight"] = part.clone()
        ours |= {
            f"{name}positions.content_bias": state["r_w_bias"],
            f"{name}positions.position_bias": state["r_r_bias"],
        }
    sizes = {"tokens_per_sample": 7, "eval_context": 14, "memory_length": 7, "share_decoder_input_output_embed": tied}
    flags = ("--memory-length", "9", "--same-length", "--clamp-distances", "5", "--skip-newlines")
    result = evaluated(tmp_path, "transformer_xl_lm", ours, *flags, **sizes)
    read = text[-60:].replace(b"\n", b"")
    ids = torch.tensor([order.index(byte) for byte in order[:1] + read])  # the first byte follows the likeliest one
    assert result["scored"] == len(read)
    assert result["bpc"] == pytest.approx(bits(transformer_xl, state, ids, memory=9, clamp=5), abs=1e-5)


def test_probabilities_are_those_of_the_published_adaptive_span(tmp_path):
    """It numbers bytes in the order in which they first occur in the text."""
    text = np.frombuffer(b"ba\nc d", np.uint8)[np.random.default_rng(0).integers(0, 6, 300)].tobytes()
    order = bytes(dict.fromkeys(text))
    folder_of(tmp_path, text, held_out=40)
    state = adaptive_span_state(len(order))
    matrices = (state[name] for name in ("in_emb.weight", "out_emb.weight", "out_emb.bias"))
    ours = embeddings(*matrices, order, before=order.index(b"\n"))  # a text begins as a line does
    ours |= renamed_layers(state, ADAPTIVE_SPAN)
    ours["decoder.positions.weight"] = state["key_pe"][0].t().flip(0).contiguous()  # from the farthest distance to 1
    for layer in range(LAYERS):
        span = state[f"layers.{layer}.attn.attn.adaptive_span._mask.current_val"]
        ours[f"decoder.spans.z.{layer}"] = span.flatten()
    sizes = {"tokens_per_sample": 512, "eval_context": SPAN, "max_span": SPAN, "span_ramp": RAMP}
    result = evaluated(tmp_path, "adaptive_span_lm", ours, **sizes)
    ids = torch.tensor([order.index(byte) for byte in b"\n" + text[-40:]])
    assert result["bpc"] == pytest.approx(bits(adaptive_span, state, ids), abs=1e-5)

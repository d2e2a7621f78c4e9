"""The character language models written out position by position from the papers, in float64."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def sinusoid(distance: int, width: int) -> Tensor:
    """r of Transformer-XL: sines, then cosines."""
    angles = [distance / 10_000 ** (2 * n / width) for n in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def normalize(x: Tensor, p: dict[str, Tensor], name: str) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]


def score(p: dict[str, Tensor], layer: str, head: int, q: Tensor, k: Tensor, position: Tensor) -> Tensor:
    """The unscaled score of a query and a key of one head."""
    if "decoder.positions.weight" in p:  # Sukhbaatar et al. 2019 §2.1
        return q @ (k + position)
    r = position[head * len(q) : (head + 1) * len(q)]
    biases = [f"{layer}.positions.{name}_bias" for name in ("content", "position")]
    of_all = [f"decoder.layers.0.positions.{name}_bias" for name in ("content", "position")]
    u, v = (p[name if name in p else shared][head] for name, shared in zip(biases, of_all, strict=True))
    return q @ k + q @ r + u @ k + v @ r


def positions(p: dict[str, Tensor], layer: str, number: int, nearest: int, farthest: int) -> list[Tensor | None]:
    """p or W_r r of the distances 0 … number − 1; None before the nearest that is seen."""
    if "decoder.positions.weight" in p:
        return [None] * nearest + list(p["decoder.positions.weight"])
    w_r = p[f"{layer}.positions.r_proj.weight"]
    return [w_r @ sinusoid(min(distance, farthest), w_r.size(1)) for distance in range(number)]


def span_mask(p: dict[str, Tensor], number: int, head: int, x: int, longest: int, ramp: int) -> Tensor:
    """m; l counts as 0 where there is none (GAA eq. 1, Sukhbaatar et al. 2019 §2.2). At 0 and 1 its gradient passes."""
    z, shared = p[f"decoder.spans.z.{number}"][head], p.get("decoder.spans.shared", torch.zeros(1))[0]
    m = (ramp + longest * (z * (1 - shared) + shared) - x) / ramp
    return m if 0 <= m <= 1 else m.detach().clamp(0, 1)


def attend(p, number, x, *, heads, sees, longest=0, ramp=1, nearest=0, zeros=False, farthest=10**9) -> Tensor:
    """The attention of a layer, (n, C) to (n, C); ``sees(layer, head, distance)`` says whom a hard window shows."""
    layer, width = f"decoder.layers.{number}", x.size(1) // heads
    q, k, v = (x @ p[f"{layer}.attention.{name}_proj.weight"].t() for name in "qkv")
    by_distance = positions(p, layer, len(x), nearest, farthest)
    nothing, rows = torch.zeros(width, dtype=x.dtype), []
    for i in range(len(x)):
        mixed = []
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            total, value = 0.0, nothing
            for distance in range(nearest, (longest or i) + 1):
                j = i - distance
                if not sees(number, head, distance) or (j < 0 and not zeros):
                    continue
                key, content = (k[j, columns], v[j, columns]) if j >= 0 else (nothing, nothing)
                weight = torch.exp(score(p, layer, head, q[i, columns], key, by_distance[distance]) / math.sqrt(width))
                if longest:
                    weight = weight * span_mask(p, number, head, distance - nearest, longest, ramp)
                total, value = total + weight, value + weight * content
            mixed.append(value / total if isinstance(total, Tensor) else value)
        rows.append(torch.cat(mixed))
    return torch.stack(rows) @ p[f"{layer}.attention.out_proj.weight"].t()


def feed(p, number, x, *, activation) -> Tensor:
    """Feed-forward layer; GAA eq. 4 where there is a gate."""
    name = f"decoder.layers.{number}.feed_forward"
    hidden = activation(x @ p[f"{name}.fc1.weight"].t() + p[f"{name}.fc1.bias"])
    if f"{name}.gate.weight" in p:
        hidden = hidden * (x @ p[f"{name}.gate.weight"].t() + p[f"{name}.gate.bias"])
    return hidden @ p[f"{name}.fc2.weight"].t() + p[f"{name}.fc2.bias"]


def logits(p, tokens, *, heads, pre_norm=False, activation=F.relu, sees=lambda *_: True, scale=True, **spans) -> Tensor:
    """(n,) indices to (n, V) logits.

    Args:
        p: the model's parameters by name, float64; u, v and the output matrix may be there once for all their uses.
        tokens: the text.
        heads, pre_norm, activation: of the model.
        sees: see :func:`attend`.
        scale: whether embeddings are multiplied by √C.
        spans: ``longest`` and ``ramp`` of adaptive spans; ``nearest``, 1 where a byte does not see itself; ``zeros``
            for keys of zeros before the text; ``farthest``, the distance that farther ones count as.
    """
    embedding = p["decoder.embed_tokens.weight"]
    x = (math.sqrt(embedding.size(1)) if scale else 1) * embedding[tokens]
    for number in range(sum(name.endswith("q_proj.weight") for name in p)):
        norms = [f"decoder.layers.{number}.{name}_norm" for name in ("attention", "feed_forward")]
        for norm, sublayer in zip(norms, ("attend", "feed"), strict=True):
            inputs = normalize(x, p, norm) if pre_norm else x
            if sublayer == "attend":
                x = x + attend(p, number, inputs, heads=heads, sees=sees, **spans)
            else:
                x = x + feed(p, number, inputs, activation=activation)
            x = x if pre_norm else normalize(x, p, norm)
    x = normalize(x, p, "decoder.layer_norm") if pre_norm else x
    output = p.get("decoder.output_projection.weight", embedding)
    return x @ output.t() + p.get("decoder.output_projection.bias", 0.0)

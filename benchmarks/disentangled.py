"""DeBERTa's attention with its weights: Hugging Face's, dense, and this project's operator. Cases of ``attention.py``.

Projections of queries, keys, values and positions included, the output's not: at Hugging Face it is another module.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention import DisentangledPosition, Window, band_attention

MAX_RELATIVE_POSITIONS = 512
HUGGING_FACE = "DeBERTa of Hugging Face"
WINDOWS = {
    "DeBERTa here": (Window.unlimited(), True),
    "level one": (Window(128), False),
    "level one, disentangled": (Window(128), True),
}


def deberta(dim: int, heads: int) -> nn.Module:
    """Hugging Face's self-attention of one layer, with its relative positions as ``positions``."""
    from transformers import DebertaConfig
    from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention

    config = DebertaConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        relative_attention=True,
        max_relative_positions=MAX_RELATIVE_POSITIONS,
        pos_att_type=["c2p", "p2c"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    module = DisentangledSelfAttention(config)
    module.positions = nn.Parameter(torch.randn(2 * MAX_RELATIVE_POSITIONS, dim))
    return module


def attention_of(module: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
    """The function of the row ``name``, from (1, T, C), with the module's weights."""
    if name == HUGGING_FACE:
        return lambda x: _hugging_face(module, x)
    window, disentangled = WINDOWS[name]
    return lambda x: _here(module, x, window, disentangled)


def _hugging_face(module: nn.Module, x: Tensor) -> Tensor:
    index = torch.arange(x.size(1), device=x.device)
    everything = torch.ones(1, 1, 1, x.size(1), dtype=torch.bool, device=x.device)
    distance = (index[:, None] - index)[None]
    return module(x, everything, relative_pos=distance, rel_embeddings=module.positions)[0]


def _here(module: nn.Module, x: Tensor, window: Window, disentangled: bool) -> Tensor:
    def by_head(y: Tensor) -> Tensor:
        return y.unflatten(-1, (module.num_attention_heads, -1)).transpose(-3, -2)

    query, key, value = by_head(module.in_proj(x)).chunk(3, -1)
    query, value = query + by_head(module.q_bias[None]), value + by_head(module.v_bias[None])
    terms = ()
    if disentangled:
        c2p, p2c = module.pos_proj(module.positions), module.pos_q_proj(module.positions)
        terms = (DisentangledPosition(by_head(c2p), by_head(p2c)),)
    scale = (3 * query.size(-1)) ** -0.5
    return band_attention(query, key, value, window=window, score_terms=terms, scale=scale).transpose(1, 2).flatten(2)

"""Initial values of the character language models, by whose code they follow."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fairseq_poolingformer.char_lm.relative_positions import ProjectedPositions


def _linear(module: nn.Module) -> None:
    """Weights from N(0, 0.02²), biases 0."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _transformer_xl(decoder: nn.Module) -> None:
    """Dai et al.'s code: N(0, 0.02²) for all matrices, embeddings, u and v; gains of layer norm from N(1, 0.02²)."""
    decoder.apply(_linear)
    nn.init.normal_(decoder.embed_tokens.weight, std=0.02)
    for module in decoder.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.02)
        if isinstance(module, ProjectedPositions):
            nn.init.normal_(module.content_bias, std=0.02)
            nn.init.normal_(module.position_bias, std=0.02)


def _fairseq(decoder: nn.Module) -> None:
    """N(0, 0.02²) for matrices; embeddings from N(0, 1/C), as in fairseq's Transformer; u and v 0."""
    decoder.apply(_linear)
    embedding = decoder.embed_tokens
    nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)


def _torch(decoder: nn.Module) -> None:
    """Leave everything as torch initializes it: embeddings and learned positions N(0, 1), as adaptive span's code."""


INITIALIZATIONS: dict[str, Callable[[nn.Module], None]] = {
    "transformer_xl": _transformer_xl,
    "fairseq": _fairseq,
    "torch": _torch,
}

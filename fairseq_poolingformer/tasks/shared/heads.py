"""The parts that the output layers of the tasks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def initialize(head: nn.Module) -> None:
    """Draw the weights of linear layers and embeddings from N(0, 0.02²), as BERT's; biases are 0."""
    for module in head.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def mean_over_segments(values: Tensor, example: Tensor, num_examples: int) -> Tensor:
    """(B, C) the means over each example's segments.

    Args:
        values: (N, C) of the segments.
        example: (N,) int64, the example of each segment.
        num_examples: B.
    """
    sums = values.new_zeros(num_examples, values.size(1)).index_add(0, example, values)
    return sums / torch.bincount(example, minlength=num_examples).unsqueeze(1)

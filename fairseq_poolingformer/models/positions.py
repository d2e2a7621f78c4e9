"""Learned positions whose first rows are frozen."""

from __future__ import annotations

import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn


class PartlyFrozenPositions(LearnedPositionalEmbedding):
    """fairseq's learned positions, whose first rows no optimizer changes (Longformer §5, frozen variant).

    The other rows are a parameter of their own, so that neither weight decay nor momentum reaches the frozen ones. The
    state dict has one ``weight``, as without frozen rows.

    Args:
        positions: the table to copy.
        num_frozen: number of first rows to freeze, including the rows before position 0.
    """

    def __init__(self, positions: LearnedPositionalEmbedding, num_frozen: int) -> None:
        super().__init__(positions.num_embeddings, positions.embedding_dim, positions.padding_idx)
        if not 0 < num_frozen < positions.num_embeddings:
            raise ValueError(f"num_frozen must be between 1 and {positions.num_embeddings - 1}, got {num_frozen}")
        del self.weight
        self.register_buffer("frozen", positions.weight.detach()[:num_frozen].clone(), persistent=False)
        self.trained = nn.Parameter(positions.weight.detach()[num_frozen:].clone())

    @property
    def weight(self) -> Tensor:
        """Both parts in one table, (rows, C); a copy."""
        return torch.cat([self.frozen, self.trained])

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        weight = self.weight
        destination[prefix + "weight"] = weight if keep_vars else weight.detach()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        weight = state_dict.get(prefix + "weight")
        if weight is None:
            missing.append(prefix + "weight")
        elif weight.shape != (self.num_embeddings, self.embedding_dim):
            wanted = (self.num_embeddings, self.embedding_dim)
            errors.append(f"size mismatch for {prefix}weight: {tuple(weight.shape)} in the checkpoint, {wanted} here")
        else:
            with torch.no_grad():
                self.frozen.copy_(weight[: len(self.frozen)])
                self.trained.copy_(weight[len(self.frozen) :])

"""The encoder's learned positions: rows that begin at random places in training, and first rows that are frozen."""

from __future__ import annotations

import torch
from fairseq.modules import LearnedPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_poolingformer.levels import at_random_offsets


class LearnedPositions(LearnedPositionalEmbedding):
    """fairseq's learned positions, with ``--random-position-offsets``: in training a row begins where it has room."""

    def __init__(self, positions: LearnedPositionalEmbedding, random_offsets: bool) -> None:
        with torch.random.fork_rng(devices=[]):  # the table made here is not used
            super().__init__(positions.num_embeddings, positions.embedding_dim, positions.padding_idx)
        self.weight = positions.weight
        self.random_offsets = random_offsets

    def forward(self, input: Tensor, *unused: object) -> Tensor:
        """(B, T, C) the positions of (B, T) tokens; padding's is ``padding_idx``."""
        numbers = make_positions(input, self.padding_idx)
        if self.random_offsets and self.training:
            numbers = at_random_offsets(numbers, input.ne(self.padding_idx), self.num_embeddings - 1)
        return F.embedding(numbers, self.weight, self.padding_idx)


class PartlyFrozenPositions(LearnedPositions):
    """fairseq's learned positions, whose first rows no optimizer changes (Longformer §5, frozen variant)."""

    # the others are a parameter of their own, away from weight decay and momentum; the state dict has one ``weight``

    def __init__(self, positions: LearnedPositions, num_frozen: int) -> None:
        super().__init__(positions, positions.random_offsets)
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

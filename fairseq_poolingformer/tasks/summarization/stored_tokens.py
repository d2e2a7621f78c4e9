"""Sequences of a data folder as one of fairseq's datasets."""

from __future__ import annotations

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_poolingformer.text.sequences import Sequences


class StoredTokens(FairseqDataset):
    """Index tensors (T,), int64, read from a memory-mapped file.

    Args:
        sequences: the tokens.
    """

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        self._sequences, self._sizes = sequences, sequences.sizes

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._sequences[index].astype(np.int64))

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def sizes(self) -> np.ndarray:
        """(n,) lengths of the sequences."""
        return self._sizes

    def num_tokens(self, index: int) -> int:
        return int(self._sizes[index])

    def size(self, index: int) -> int:
        return int(self._sizes[index])

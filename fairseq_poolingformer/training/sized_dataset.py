"""The part that datasets share whose items differ in length."""

from __future__ import annotations

import numpy as np
from fairseq.data import FairseqDataset

from fairseq_poolingformer.training.length_buckets import length_order


class SizedDataset(FairseqDataset):
    """Items with a number of tokens each, ordered by it.

    Args:
        sizes: (n,) tokens of the items.
        shuffle: order items by chance among those of similar length, anew in every epoch.
    """

    def __init__(self, sizes: np.ndarray, shuffle: bool) -> None:
        super().__init__()
        self.sizes, self.shuffle = sizes, shuffle

    def used(self) -> np.ndarray:
        """The numbers of the items that this epoch has, ascending."""
        return np.arange(len(self))

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """Whether epochs are alike; in training every epoch has batches of its own."""
        return not self.shuffle

    def __len__(self) -> int:
        return len(self.sizes)

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return self.sizes[indices]

    def ordered_indices(self) -> np.ndarray:
        """The epoch's items in the order from which fairseq cuts batches; it seeds numpy by epoch before."""
        used = self.used()
        if self.shuffle:
            return length_order(self.sizes, None, np.random.permutation(used))
        return used[np.argsort(self.sizes[used], kind="stable")]

"""Batches of items of similar length, composed anew in every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset, LanguagePairDataset

from fairseq_poolingformer.command import UsageError

SOURCE_STEP, TARGET_STEP = 0.03, 0.10


def length_order(source_sizes: np.ndarray, target_sizes: np.ndarray | None, shuffled: np.ndarray) -> np.ndarray:
    """Order examples for little padding: documents within 3 %, then summaries within 10 %, then by chance."""
    # fairseq's exact sort puts the same documents together in every epoch and pads summaries more
    sources = _bucket(source_sizes[shuffled], SOURCE_STEP)
    if target_sizes is None:
        return shuffled[np.argsort(sources, kind="stable")]
    targets = _bucket(target_sizes[shuffled], TARGET_STEP)
    # up in one bucket and down in the next, so that a batch across both has no longest beside shortest
    return shuffled[np.lexsort((np.where(sources % 2, -targets, targets), sources))]


def _bucket(sizes: np.ndarray, step: float) -> np.ndarray:
    """Number the bucket of each size; a bucket's longest size is ``step`` longer than its shortest."""
    return np.ceil(np.log(np.maximum(sizes, 1)) / np.log1p(step)).astype(np.int64)


def check_longest(
    dataset: FairseqDataset, indices: np.ndarray, max_tokens: int | None, whole: str = "", remedy: str = ""
) -> None:
    """Raise UsageError where an example alone has more tokens than a batch may have."""
    sizes = dataset.num_tokens_vec(indices)
    if max_tokens and len(sizes) and sizes.max() > max_tokens:
        raise UsageError(
            f"example {indices[np.argmax(sizes)]} (0-based) has {sizes.max()} tokens{whole}, more than --max-tokens "
            f"{max_tokens} (in validation --max-tokens-valid): raise it, or give --batch-size in its place{remedy}"
        )


def keep_the_last_batch(original: Callable, indices: Any, *args: Any, **kwargs: Any) -> list:
    """Keep the last batch when its size is no multiple of ``--required-batch-size-multiple``, which fairseq drops."""
    # the batches cut the indices in order, so what is missing is a tail
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if len(indices) == 0:
        return []  # the original looks at the last batch, which is not there
    batches = original(indices, *args, **kwargs)
    count = sum(len(batch) for batch in batches)
    if count < len(indices):
        batches.append(indices[count:])
    return batches


class SizedDataset(FairseqDataset):
    """Items with a number of tokens each, ordered by it."""

    whole, remedy = "", ""  # of the message on an item that is too long

    def __init__(self, sizes: np.ndarray, shuffle: bool) -> None:
        super().__init__()
        self.sizes, self.shuffle = sizes, shuffle

    def used(self) -> np.ndarray:
        """The numbers of the items that this epoch has, ascending."""
        return np.arange(len(self))

    def num_counted(self) -> int:
        """How many of the epoch's items training and validation count something of."""
        return len(self.used())

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

    def batch_by_size(self, indices: np.ndarray, max_tokens: int | None = None, **limits: Any) -> list[np.ndarray]:
        """fairseq's batches, with every example."""
        check_longest(self, indices, max_tokens, self.whole, self.remedy)
        return keep_the_last_batch(super().batch_by_size, indices, max_tokens=max_tokens, **limits)


class LengthBucketDataset(LanguagePairDataset):
    """fairseq's dataset of pairs, ordered by :func:`length_order` when it is to be shuffled."""

    def ordered_indices(self) -> np.ndarray:
        """Indices in the order in which batches are cut. numpy draws the random numbers; fairseq seeds it by epoch."""
        if not self.shuffle or self.buckets is not None:
            return super().ordered_indices()
        return length_order(self.src_sizes, self.tgt_sizes, np.random.permutation(len(self)))

    def batch_by_size(self, indices: np.ndarray, max_tokens: int | None = None, **limits: Any) -> list[np.ndarray]:
        """fairseq's batches, with every example."""
        check_longest(self, indices, max_tokens)
        return keep_the_last_batch(super().batch_by_size, indices, max_tokens=max_tokens, **limits)

"""Sequences of a data folder as models read them: ``<s> tokens </s>``, cut to a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from torch import Tensor

from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.training.sized_dataset import LengthBucketDataset


class _Sized:
    """A data set whose ``_sizes`` are (n,) lengths of its sequences."""

    _sizes: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """(n,) lengths of the sequences."""
        return self._sizes

    def num_tokens(self, index: int) -> int:
        return int(self._sizes[index])

    def size(self, index: int) -> int:
        return int(self._sizes[index])


class FramedDataset(_Sized, BaseWrapperDataset):
    """Begin every sequence with ``<s>``, and cut it before its ``</s>`` to fit ``max_length``.

    ``max_length`` counts both marks.
    """

    def __init__(self, dataset, sizes: np.ndarray, *, bos: int, eos: int, max_length: int | None) -> None:
        super().__init__(dataset)
        if max_length is not None and max_length < 3:
            raise ValueError(f"max_length must leave room for <s>, a token and </s>, got {max_length}")
        self.bos, self.eos = bos, eos
        self.max_length = np.iinfo(np.int64).max if max_length is None else max_length
        whole = np.asarray(sizes, dtype=np.int64) + 1
        self._sizes = np.minimum(whole, self.max_length)
        self.num_truncated = int((whole > self.max_length).sum())
        self.num_tokens_cut = int((whole - self._sizes).sum())

    def __getitem__(self, index: int) -> Tensor:
        tokens = self.dataset[index]
        tokens = torch.cat([tokens.new_tensor([self.bos]), tokens])
        if len(tokens) > self.max_length:
            tokens = tokens[: self.max_length].clone()
            tokens[-1] = self.eos
        return tokens


class StoredTokens(_Sized, FairseqDataset):
    """Index tensors (T,), int64, read from a memory-mapped file."""

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        self._sequences, self._sizes = sequences, sequences.sizes

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._sequences[index].astype(np.int64))

    def __len__(self) -> int:
        return len(self._sequences)


class QueriedDataset(LengthBucketDataset):
    """Pairs whose documents begin with questions, the tokens of which are global."""

    def __init__(self, *pairs: Any, queries: Sequences, global_tokens: int, **named: Any) -> None:
        super().__init__(*pairs, **named)
        self.queries, self.global_tokens = queries, global_tokens

    def collater(self, samples: Sequence[Mapping[str, Any]], pad_to_length: Any = None) -> dict[str, Any]:
        """fairseq's batch with ``global_mask``, (B, T) bool."""
        batch = super().collater(samples, pad_to_length)
        if batch:
            counts = [max(1 + int(self.queries[index][0]), self.global_tokens) for index in batch["id"].tolist()]
            places = torch.arange(batch["net_input"]["src_tokens"].size(1))
            batch["net_input"]["global_mask"] = places < torch.tensor(counts)[:, None]
        return batch

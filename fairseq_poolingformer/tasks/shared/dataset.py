"""fairseq's dataset of examples that are cut into segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.tasks.shared.examples import Examples
from fairseq_poolingformer.training.sized_dataset import SizedDataset


class SegmentsDataset(SizedDataset):
    """Examples of a downstream task; the rows of a batch are all segments of its examples.

    Args:
        examples: of a split.
        pad: the dictionary's index of padding.
        shuffle: order examples by chance among those of similar length.
    """

    def __init__(self, examples: Examples, pad: int, shuffle: bool = False) -> None:
        super().__init__(examples.sizes, shuffle)
        self.examples, self.pad = examples, pad

    def set_epoch(self, epoch: int) -> None:
        """Tell the examples which epoch is read."""
        self.examples.set_epoch(epoch)

    def used(self) -> np.ndarray:
        """The numbers of the trainable examples."""
        return np.flatnonzero(self.examples.trainable)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = int(index)
        return {
            "id": index,
            "segments": self.examples.segments(index),
            "inputs": self.examples.inputs(index),
            "targets": self.examples.targets(index),
        }

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch of B examples with N segments together, padded on the right.

        Args:
            samples: items of this dataset.

        Returns:
            ``id`` (B,). ``net_input``: src_tokens (N, T); global_mask (N, T); head_inputs: example (N,), the number in
            the batch of each row's example; num_examples, B; the segments' inputs (N, T) and those of examples.
            ``target``: the segments' targets (N, T) and those of examples.
        """
        if not samples:
            return {}
        segments = [segment for sample in samples for segment in sample["segments"]]
        counts = torch.tensor([len(sample["segments"]) for sample in samples])
        head_inputs = {"example": torch.arange(len(samples)).repeat_interleave(counts), "num_examples": len(samples)}
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(segment.tokens) for segment in segments),
            "net_input": {
                "src_tokens": _pad([segment.tokens for segment in segments], self.pad),
                "global_mask": _pad([segment.global_mask for segment in segments], False),
                "head_inputs": head_inputs
                | _padded([segment.inputs for segment in segments])
                | _joined([sample["inputs"] for sample in samples]),
            },
            "target": _padded([segment.targets for segment in segments])
            | _joined([sample["targets"] for sample in samples]),
        }


def _padded(rows: list[dict[str, np.ndarray]]) -> dict[str, Tensor]:
    return {name: _pad([row[name] for row in rows], 0) for name in rows[0]}


def _joined(values: list[dict[str, Any]]) -> dict[str, Tensor | list[Tensor]]:
    joined: dict[str, Tensor | list[Tensor]] = {}
    for name, first in values[0].items():
        column = [value[name] for value in values]
        joined[name] = list(map(torch.as_tensor, column)) if isinstance(first, np.ndarray) else torch.tensor(column)
    return joined


def _pad(rows: list[np.ndarray], value: int) -> Tensor:
    """Integers become int64, booleans stay as they are."""
    tensors = [torch.from_numpy(row if row.dtype == bool else row.astype(np.int64)) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value)

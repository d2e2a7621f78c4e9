"""fairseq's dataset of masked document blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.text.document_blocks import DocumentBlocks
from fairseq_poolingformer.text.masking import Masking
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.training.sized_dataset import SizedDataset


class MaskedLMDataset(SizedDataset):
    """Reads blocks ``<s> … </s>`` from memory-mapped documents and masks them one at a time.

    The seed, the epoch and the block's number alone decide a block's mask: other blocks, workers and processes do not.

    Args:
        documents: the documents, each with ``</s>`` at its end.
        blocks: the places of the blocks in them.
        masking: masks a block.
        dictionary: gives ``<s>``, ``</s>`` and padding.
        seed: of the masks.
        shuffle: shuffle blocks of similar length, and mask them anew in every epoch.
    """

    def __init__(
        self,
        documents: Sequences,
        blocks: DocumentBlocks,
        masking: Masking,
        dictionary: Dictionary,
        *,
        seed: int = 1,
        shuffle: bool = False,
    ) -> None:
        super().__init__(blocks.sizes, shuffle)
        self.documents, self.blocks, self.masking, self.dictionary = documents, blocks, masking, dictionary
        self.seed, self.epoch = seed, 1

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose masks to draw."""
        if self.shuffle:
            self.epoch = epoch

    def documents_of(self, index: int) -> list[int]:
        """The numbers of the documents that a block has tokens of."""
        ends = [self.blocks.first_token[index], self.blocks.end_token[index] - 1]
        first, last = np.searchsorted(self.documents.bounds, ends, side="right") - 1
        return list(range(first, last + 1))

    def __getitem__(self, index: int) -> dict[str, Any]:
        text = self.documents.read(self.blocks.first_token[index], self.blocks.end_token[index])
        tokens = np.concatenate([[self.dictionary.bos()], text, [self.dictionary.eos()]]).astype(np.int64)
        rng = np.random.default_rng([self.seed, self.epoch, index])
        seen, is_target = self.masking.apply(tokens, rng)
        return {
            "id": index,
            "tokens": torch.from_numpy(seen),
            "target": torch.from_numpy(np.where(is_target, tokens, self.dictionary.pad())),
            "num_characters": int(self.masking.symbols.num_characters[tokens[is_target]].sum()),
        }

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch, padded on the right.

        Args:
            samples: items of this dataset.

        Returns:
            ``net_input`` with src_tokens (B, T); ``target`` (B, T), padding where there is nothing to predict;
            ``masked_positions`` (M,), the places of the targets, counted row by row; ``num_characters``, the number of
            the targets' characters.
        """
        if not samples:
            return {}
        target = self._pad([sample["target"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(sample["tokens"]) for sample in samples),
            "net_input": {"src_tokens": self._pad([sample["tokens"] for sample in samples])},
            "target": target,
            # found here, since finding them on the device would make the criterion wait for their number
            "masked_positions": target.flatten().ne(self.dictionary.pad()).nonzero().squeeze(1),
            "num_characters": sum(sample["num_characters"] for sample in samples),
        }

    def _pad(self, rows: list[Tensor]) -> Tensor:
        return pad_sequence(rows, batch_first=True, padding_value=self.dictionary.pad())

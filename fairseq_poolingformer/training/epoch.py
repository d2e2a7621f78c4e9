"""The batches of an epoch, which a resumed training continues by example, whatever the batches are now."""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.data_utils import numpy_seed
from fairseq.data.iterators import EpochBatchIterator, ShardedIterator

from fairseq_poolingformer.command import UsageError

logger = logging.getLogger(__name__)

# in the iterator's state within an epoch: examples, those read, and those left out when the batches were last cut
COUNT, READ, LEFT_OUT = "num_examples", "examples_read", "examples_left_out"


class EpochBatches(EpochBatchIterator):
    """fairseq's iterator, with the examples that an epoch has read in its state in place of a number of batches.

    ``cut`` makes batches of the numbers of examples that it is given, in their order. ``update_freq`` has the batches
    of an update in each epoch, the last one's in all further ones.
    """

    def __init__(
        self,
        dataset: FairseqDataset,
        batches: Sequence[Sequence[int]],
        cut: Callable[[np.ndarray], Sequence[Sequence[int]]],
        update_freq: Sequence[int],
        **named: Any,
    ) -> None:
        super().__init__(dataset, dataset.collater, batches, **named)
        self.cut, self.update_freq = cut, update_freq
        self._resumed = 0  # the epoch that a former process began; 0: none
        self._read, self._left_out = np.zeros(len(dataset), bool), np.zeros(len(dataset), bool)  # there, by then
        self._batches: Sequence[Sequence[int]] = ()  # there
        self._start = 0  # there: batches of this process that count as read

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> list[Sequence[int]]:
        """The batches of this process, behind empty ones for those that were read."""
        batches = self._in_order(epoch, shuffle)
        share = list(ShardedIterator(batches, self.num_shards, self.shard_id, fill_value=[]))
        return [[]] * (self._start if epoch == self._resumed else 0) + share

    def _in_order(self, epoch: int, shuffle: bool) -> list[Sequence[int]]:
        """The unread batches of an epoch, which the processes take in turn."""
        is_resumed = epoch == self._resumed
        batches = list(self._batches if is_resumed else self.frozen_batches)
        if shuffle:
            size = self.num_shards if self.grouped_shuffling else 1
            whole = len(batches) // size * size
            groups = [batches[first : first + size] for first in range(0, whole, size)]
            with numpy_seed(self.seed + epoch):
                np.random.shuffle(groups)
            batches[:whole] = chain.from_iterable(groups)
        return [batch for batch in batches if not self._read[batch[0]]] if is_resumed else batches

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state; within an epoch also the examples that it has read, a bit each."""
        state = super().state_dict()
        if state["epoch"] != self.epoch:
            return state  # the epoch is over
        is_resumed = self.epoch == self._resumed
        count = self.iterations_in_epoch - (self._start if is_resumed else 0)
        read = self._read.copy() if is_resumed else np.zeros(len(self.dataset), bool)
        for batch in self._in_order(self.epoch, self.shuffle)[: count * self.num_shards]:
            read[batch] = True
        left_out = {LEFT_OUT: _packed(self._left_out)} if is_resumed and self._left_out.any() else {}
        return {**state, COUNT: len(read), READ: _packed(read), **left_out}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue an epoch without the examples that it has read."""
        if READ not in state_dict:
            super().load_state_dict(state_dict)
            return
        count, shuffle = state_dict[COUNT], state_dict.get("shuffle", True)
        read = _unpacked(state_dict[READ], count)
        if count != len(self.dataset):
            raise UsageError(
                f"the checkpoint is of epoch {state_dict['epoch']}, which has read {read.sum()} of {count} examples, "
                f"and the training data has {len(self.dataset)} now. Give the former data, or begin with epoch 1 of "
                "the present data by --reset-dataloader"
            )
        self.epoch = self._resumed = state_dict["epoch"]
        self._read, self._left_out = read, _unpacked(state_dict.get(LEFT_OUT), count)
        self._batches = self._without(self._left_out)
        if any(0 < read[batch].sum() < len(batch) for batch in self._batches):  # they are cut in another way now
            self._left_out = read
            self._batches = self._without(read)
            if self.shard_id == 0:
                logger.info(
                    f"epoch {self.epoch} has read {read.sum()} of {count} examples; new batches have the others"
                )
        unread = sum(not read[batch[0]] for batch in self._batches)
        if not unread:
            self.epoch, self._resumed, self._next_epoch_itr = self.epoch + 1, 0, None
            return
        # fairseq divides the whole epoch into updates, so what was read must count as whole ones
        update = self.update_freq[min(self.epoch, len(self.update_freq)) - 1]
        start = len(self) - -(-unread // self.num_shards)
        self._start = max(0, start) // update * update
        self._next_epoch_itr = self._get_iterator_for_epoch(self.epoch, shuffle, offset=self._start)

    def _without(self, left_out: np.ndarray) -> Sequence[Sequence[int]]:
        if not left_out.any():
            return self.frozen_batches
        examples = np.fromiter(chain.from_iterable(self.frozen_batches), np.int64)
        return self.cut(examples[~left_out[examples]])


def _packed(examples: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.packbits(examples))


def _unpacked(bits: torch.Tensor | None, count: int) -> np.ndarray:
    return np.zeros(count, bool) if bits is None else np.unpackbits(bits.cpu().numpy(), count=count).astype(bool)

"""The processes that share a document, and what they tell each other when one of them fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor


class Ranks(Protocol):
    """The processes that share a document, in its order.

    Attributes:
        rank: this one's number.
        size: how many there are.
    """

    rank: int
    size: int

    def swap(self, sent: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """Send bytes to each rank, and return those of each.

        Args:
            sent: for each rank a (bytes,) uint8 tensor.
            sizes: how many bytes each rank sends to this one.
        """

    def fail(self, error: BaseException) -> None:
        """Tell the others of an error, which this rank is about to raise."""


class GroupRanks(Ranks):
    """The ranks of a group of ``torch.distributed``.

    An exchange fails where a process of the group has ended, or after the group's timeout. Then each rank leaves a word
    in torch.distributed's store, as a rank with an error has done, and reads the others': dead ranks leave none.

    Args:
        group: the group; None for all processes.
        patience: seconds that a rank waits for the others' words.
    """

    def __init__(self, group: Any = None, patience: float = 30.0) -> None:
        import torch.distributed as distributed

        group = distributed.group.WORLD if group is None else group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)
        self._group, self._all_to_all, self._patience = group, distributed.all_to_all_single, patience
        self._names = distributed.get_process_group_ranks(group)  # the numbers by which people know the processes
        self._get_store, self._exchanges, self._last_word = distributed.distributed_c10d._get_default_store, 0, -1

    def swap(self, sent: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """Exchange bytes.

        Raises:
            RuntimeError: another rank has failed, with its error, or is gone.
        """
        received = sent[0].new_empty(sum(sizes))
        try:
            self._all_to_all(received, torch.cat(sent), sizes, [len(x) for x in sent], group=self._group)
        except RuntimeError as error:
            raise RuntimeError(self._reason()) from error
        self._exchanges += 1
        return list(received.split(sizes))

    def fail(self, error: BaseException) -> None:
        """Leave a word for those who wait in the exchange that this rank does not reach."""
        with suppress(RuntimeError):  # of a store that is gone; the error itself matters more
            self._leave("word", f"{type(error).__name__}: {error}"[:1000])

    def _leave(self, kind: str, text: str = "") -> None:
        if kind == "read" or self._last_word < self._exchanges:  # an error's own word stays
            self._get_store().set(self._key(kind, self.rank), text)
            self._last_word = self._exchanges

    def _key(self, kind: str, rank: int) -> str:
        """Exchanges are counted, so that words of an error from which all ranks recovered do not count."""
        return f"fairseq_poolingformer/{self._names}/{self._exchanges}/{kind}/{rank}"

    def _heard(self, kind: str, rank: int, until: float) -> str | None:
        """What a rank has left before a time of the clock; None where it has not."""
        store, key = self._get_store(), self._key(kind, rank)
        if not store.check([key]):
            try:
                store.wait([key], timedelta(seconds=max(0.01, until - time.monotonic())))
            except RuntimeError:  # which is how a store says that the time is over
                return None
        return store.get(key).decode()

    def _reason(self) -> str:
        """Why an exchange failed."""
        others, now = [rank for rank in range(self.size) if rank != self.rank], time.monotonic()
        try:
            self._leave("word")
            words = {rank: self._heard("word", rank, now) for rank in others}
            if not any(words.values()):  # else these are the cause
                words = {rank: self._heard("word", rank, now + self._patience) for rank in others}
            self._leave("read")
            for rank, word in words.items():
                if word == "":  # the store may end with the process that reads first
                    self._heard("read", rank, time.monotonic() + self._patience)
        except RuntimeError:
            return "an exchange failed, and so did torch.distributed's store: process 0, which keeps it, is gone"
        if failed := [f"rank {self._names[rank]} failed: {word}" for rank, word in words.items() if word]:
            return "; ".join(failed)
        if silent := [str(self._names[rank]) for rank, word in words.items() if word is None]:
            ranks = f"rank {silent[0]} is" if len(silent) == 1 else f"ranks {', '.join(silent)} are"
            return f"{ranks} gone or stuck: an exchange failed, and no word came within {self._patience:g} s"
        return "an exchange failed on every rank; the error above is torch.distributed's"


@contextmanager
def telling(ranks: Ranks | None) -> Iterator[None]:
    """Tell the other ranks of an error in the block."""
    try:
        yield
    except BaseException as error:
        if ranks is not None:
            ranks.fail(error)
        raise

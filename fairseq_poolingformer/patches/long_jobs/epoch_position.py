"""Trainings that are resumed by another number of processes."""

import logging
from collections.abc import Callable
from typing import Any

from fairseq_poolingformer.patches.patching import replace

logger = logging.getLogger(__name__)

PROCESSES = "processes"  # the entry in the state of the iterator


def apply() -> None:
    """Patch the iterator over an epoch, whose state checkpoints hold."""
    from fairseq.data.iterators import EpochBatchIterator

    replace(EpochBatchIterator, "state_dict", counting_processes)
    replace(EpochBatchIterator, "load_state_dict", at_the_same_batch)


def counting_processes(original: Callable) -> Callable:
    """Save the number of processes beside the number of batches that each has read."""

    def state_dict(self: Any) -> dict[str, Any]:
        return {**original(self), PROCESSES: self.num_shards}

    return state_dict


def at_the_same_batch(original: Callable) -> Callable:
    """Continue an epoch where all processes together were, and say what another number of them changes.

    fairseq continues at the same number of batches of each process: twice as many processes then skip as many batches
    as were read, half as many read half of them again.
    """

    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        before, now = state_dict.get(PROCESSES, self.num_shards), self.num_shards
        if before != now:
            read = state_dict.get("iterations_in_epoch", 0) * before
            state_dict = {**state_dict, "iterations_in_epoch": read // now}
            again = f", of which {read % now} are read again" if read % now else ""
            logger.warning(
                f"the checkpoint was saved by {before} processes and is continued by {now}. {read} batches of this "
                f"epoch have been read{again}. An update is made of {now} × --update-freq batches: choose an "
                "--update-freq that keeps the product. Dropout and other random numbers differ from those of a run "
                "without the change"
            )
        original(self, state_dict)

    return load_state_dict

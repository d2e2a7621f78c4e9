"""Batches, and the processes that read them."""

from collections.abc import Callable
from typing import Any

import numpy

from fairseq_poolingformer.command import UsageError


def keep_the_last_batch(original: Callable, indices: Any, *args: Any, **kwargs: Any) -> list:
    """Keep the last batch when its size is no multiple of ``--required-batch-size-multiple``.

    fairseq silently drops that batch in training, validation and generation alike: with the default multiple of
    8, 12 test sentences give 8 hypotheses. A required multiple is a matter of speed, so the examples come first.

    Every caller in fairseq goes through this one function: with sizes as a vector or as a function, and with fixed
    shapes, where nothing is dropped. The batches cut the indices in order, so what is missing is a tail.
    """
    if not isinstance(indices, numpy.ndarray):
        indices = numpy.fromiter(indices, dtype=numpy.int64, count=-1)
    if len(indices) == 0:
        return []  # the original looks at the last batch, which is not there
    batches = original(indices, *args, **kwargs)
    kept = sum(len(batch) for batch in batches)
    if kept < len(indices):
        batches.append(indices[kept:])
    return batches


def end_workers_with_their_epoch(original: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    """Let the processes that read data end with their epoch.

    fairseq asks them to wait for the next one, but makes others then: every epoch of a dataset whose batches change
    would leave its own behind, until Python happens to collect the cycle that they are in.
    """
    original(self, *args, **kwargs)
    self.persistent_workers = False


def release_after_the_last_item(original: Callable, self: Any) -> Any:
    """Let go of what an iterator reads from, and so of its processes, when its last item has come."""
    item = original(self)
    if not self.has_next():
        self._itr = iter(())
    return item


def refuse_split_that_counts_nothing(original: Callable, self: Any, subset: str, *args: Any, **kwargs: Any) -> Any:
    """Say which validation split has no example that counts: fairseq fails without batches, or logs a loss of 0."""
    dataset = self.task.dataset(subset)
    if getattr(dataset, "num_counted", lambda: True)():
        return original(self, subset, *args, **kwargs)
    raise UsageError(
        f"--valid-subset {subset}: none of its {len(dataset)} examples has what the task counts, such as a label, "
        "or an answer in the part that is read; give another split, or --disable-validation"
    )

"""Batches and datasets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from fairseq_poolingformer.patches.patching import replace
from fairseq_poolingformer.text.sequences import check_dataset


def apply() -> None:
    """Patch batching, stored datasets and whole-word masking; see the functions below."""
    from fairseq.data import data_utils, indexed_dataset, iterators
    from fairseq.tasks.masked_lm import MaskedLMTask

    replace(data_utils, "batch_by_size", no_batch_dropped)
    replace(indexed_dataset, "make_dataset", checked_dataset)
    replace(iterators.EpochBatchIterator, "__init__", workers_of_one_epoch)
    replace(iterators.CountingIterator, "__next__", done_with_the_last)
    if not hasattr(MaskedLMTask, "args"):
        MaskedLMTask.args = property(whole_word_bpe)


def no_batch_dropped(original: Callable) -> Callable:
    """Keep the last batch when its size is no multiple of ``--required-batch-size-multiple``.

    fairseq silently drops that batch in training, validation and generation alike: with the default multiple of
    8, 12 test sentences give 8 hypotheses. A required multiple is a matter of speed, so the examples come first.

    Every caller in fairseq goes through this one function: with sizes as a vector or as a function, and with fixed
    shapes, where nothing is dropped. The batches cut the indices in order, so what is missing is a tail.
    """

    def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> list:
        if not isinstance(indices, numpy.ndarray):
            indices = numpy.fromiter(indices, dtype=numpy.int64, count=-1)
        if len(indices) == 0:
            return []  # the original looks at the last batch, which is not there
        batches = original(indices, *args, **kwargs)
        kept = sum(len(batch) for batch in batches)
        if kept < len(indices):
            batches.append(indices[kept:])
        return batches

    return batch_by_size


def checked_dataset(original: Callable) -> Callable:
    """Check a memory-mapped dataset before fairseq opens it; fairseq trusts its index, whoever wrote it."""

    def make_dataset(path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
        if impl == "mmap" and Path(f"{path}.idx").exists() and Path(f"{path}.bin").exists():
            check_dataset(path)
        return original(path, impl, *args, **kwargs)

    return make_dataset


def workers_of_one_epoch(original: Callable) -> Callable:
    """Let the processes that read data end with their epoch.

    fairseq asks them to wait for the next one, but makes others then: every epoch of a dataset whose batches change
    would leave its own behind, until Python happens to collect the cycle that they are in.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.persistent_workers = False

    return __init__


def done_with_the_last(original: Callable) -> Callable:
    """Let go of what an iterator reads from, and so of its processes, when its last item has come."""

    def __next__(self: Any) -> Any:
        item = original(self)
        if not self.has_next():
            self._itr = iter(())
        return item

    return __next__


def whole_word_bpe(task: Any) -> Any:
    """Return the bpe configuration that ``--mask-whole-words`` reads the word boundaries from.

    The masked_lm task hands ``self.args`` to ``get_whole_word_mask``, but has had no such attribute since its options
    moved to a dataclass. The bpe is beside the task in the whole configuration.

    Args:
        task: The masked_lm task.

    Returns:
        The ``bpe`` part of the configuration.

    Raises:
        AttributeError: The task does not mask whole words, so it has no ``args``.
        ValueError: There is no bpe, without which fairseq would silently mask single tokens.
    """
    if not task.cfg.mask_whole_words:
        raise AttributeError(f"{type(task).__name__!r} object has no attribute 'args'")
    bpe = getattr(task.cfg._get_root(), "bpe", None)
    if bpe is None or getattr(bpe, "_name", None) is None:
        raise ValueError(
            "--mask-whole-words needs to know where words begin: give --bpe (for instance --bpe gpt2 with "
            "--gpt2-encoder-json and --gpt2-vocab-bpe, or --bpe sentencepiece with --sentencepiece-model)"
        )
    return bpe

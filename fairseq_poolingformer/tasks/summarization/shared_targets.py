"""The loss of a batch whose documents ranks have parts of: each counts its share of the summaries' tokens."""

from collections.abc import Callable
from typing import Any

import torch

from fairseq_poolingformer.attention.sharding import Ranks

Loss = tuple[torch.Tensor, int, dict[str, Any]]


def counting_own_share(criterion: Any, ranks: Ranks | None, pad: int) -> Callable[[Any, dict[str, Any]], Loss]:
    """A criterion whose losses, sample sizes and logged numbers add up, over the ranks, to those of one process.

    Args:
        criterion: one of fairseq's, for a model that takes ``target_columns``.
        ranks: which have the same batch; None for the criterion as it is.
        pad: the symbol of targets that do not count.

    Raises:
        ValueError: the criterion leaves out the first tokens of what it is given.
    """
    if ranks is None:
        return criterion
    if getattr(criterion, "ignore_prefix_size", 0):
        raise ValueError("--ignore-prefix-size does not go with --context-parallel-size: leave one of them out")

    def count(model: Any, sample: dict[str, Any]) -> Loss:
        loss, sample_size, logged = criterion(model, _share(sample, ranks, pad))
        if ranks.rank > 0:  # sentences count once
            logged["nsentences"] = 0
            if criterion.sentence_avg:
                sample_size = logged["sample_size"] = 0
        return loss, sample_size, logged

    return count


def _share(sample: dict[str, Any], ranks: Ranks, pad: int) -> dict[str, Any]:
    """The batch with some columns of the target: as many on each rank, of which those beyond the last do not count."""
    target = sample["target"]
    count = -(-target.size(1) // ranks.size)
    columns = torch.arange(count, device=target.device) + ranks.rank * count
    beyond = columns >= target.size(1)
    columns = columns.where(~beyond, 0)
    target = target[:, columns].masked_fill(beyond, pad)
    return {
        **sample,
        "target": target,
        "ntokens": int(target.ne(pad).sum()),
        "net_input": {**sample["net_input"], "target_columns": columns},
    }

"""Batches whose documents ranks have parts of: each counts a share of the loss, and the first one's search decides."""

import contextlib
from typing import Any

import torch
from torch import nn

from fairseq_poolingformer.attention.sharding import Ranks
from fairseq_poolingformer.attention.sharding.exchange import stacked
from fairseq_poolingformer.patching import set_within


def share_targets(criterion: nn.Module, ranks: Ranks, pad: int) -> None:
    """Let a criterion count a share of each batch: losses, sample sizes and logged numbers add up over the ranks."""
    if getattr(criterion, "ignore_prefix_size", 0):
        raise ValueError("--ignore-prefix-size does not go with --context-parallel-size: leave one of them out")
    criterion.counts_share = True
    criterion.register_forward_pre_hook(lambda _, given: (given[0], _share(given[1], ranks, pad)))
    if ranks.rank:
        criterion.register_forward_hook(_without_sentences)


def _without_sentences(criterion: Any, given: Any, counted: tuple[Any, Any, dict[str, Any]]) -> tuple[Any, ...]:
    """The same loss, with no sentences: the first rank counts them."""
    loss, sample_size, logged = counted
    sample_size = 0 if criterion.sentence_avg else sample_size
    return loss, sample_size, {**logged, "nsentences": 0, "sample_size": sample_size}


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


def of_the_first(ranks: Ranks, generator: Any) -> contextlib.AbstractContextManager:
    """All ranks go on with the choices of the first one's search: another processor may round otherwise."""
    search = getattr(generator, "search", None)
    if search is None:
        return contextlib.nullcontext()
    step = search.step
    return set_within(search, "step", lambda *given, **named: [x[0] for x in stacked(ranks, *step(*given, **named))])

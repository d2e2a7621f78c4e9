"""What all Poolingformers for transformers share: initialization, and weights that are compared with their digests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file

from fairseq_poolingformer.huggingface.attention import initialize
from fairseq_poolingformer.weights import tensor_digests


def share_of_mean(loss: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None) -> Tensor | None:
    """Return a batch's share of the mean over all batches that Trainer accumulates, so that the shares add up to it."""
    if loss is None or num_items_in_batch is None:
        return loss
    items = labels.ne(-100).sum().to(loss.device)
    return torch.where(items > 0, loss, 0.0) * items / num_items_in_batch  # without labels, the mean is not a number


class TwoLevelModel:
    """Comes before transformers' own class among a model's bases.

    Attributes:
        divided: runs an encoder's forward pass on a part of each batch (``context_parallel``); None on whole ones.
    """

    divided: ClassVar[Any] = None

    def _of_part(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return forward if self.divided is None else partial(self.divided, forward)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize(module)

    def with_defaults(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of a forward pass with the configuration's ``output_attentions`` where they have none.

        transformers' own layers always have their weights at hand, those here compute them when told to.
        """
        given = kwargs.get("output_attentions")
        return {**kwargs, "output_attentions": self.config.output_attentions if given is None else given}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> PreTrainedModel:
        """Load as transformers does, and compare the weights with their digests, where they have any."""
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        if pretrained_model_name_or_path is not None and (
            folder := _folder_of(pretrained_model_name_or_path, **kwargs)
        ):
            tensor_digests.check_folder(folder)
        return loaded


def _folder_of(
    model: str | Path, *, subfolder: str = "", cache_dir: Any = None, revision: str | None = None, **others: Any
) -> Path | None:
    """Return a model's folder: the given one, or that of the cache where a model of the Hub was put."""
    if Path(model).is_dir():
        return Path(model) / subfolder
    place = {"subfolder": subfolder, "cache_dir": cache_dir, "revision": revision, "local_files_only": True}
    config = cached_file(model, "config.json", **place, _raise_exceptions_for_missing_entries=False)
    return Path(config).parent if config else None

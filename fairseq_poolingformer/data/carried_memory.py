"""A model's memory between the batches of a text that is read segment after segment."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


class CarriedMemory:
    """Keeps what a model remembers after a batch for the next batch of the same rows.

    It goes with the position that it was kept for: after a batch that was passed over, or resuming with other rows
    or segments, nothing is handed out, and that is logged.
    """

    def __init__(self) -> None:
        self._position = 0
        self._tensors: list[Tensor] | None = None

    def before(self, sample: dict[str, Any]) -> list[Tensor] | None:
        """The memory with which to read a batch.

        Args:
            sample: a batch of :class:`~fairseq_poolingformer.data.text_stream.StreamSegments`.

        Returns:
            A tensor (B, …) for each layer, or None at the beginning of the rows.
        """
        if not sample["continues"]:
            return None
        source = sample["net_input"]["src_tokens"]
        other_rows = bool(self._tensors) and self._tensors[0].size(0) != source.size(0)
        if self._position != sample["position"] or other_rows:
            logger.warning("read without a memory from byte %d of the rows on: there is none", sample["position"])
            return None
        return self._tensors and [tensor.to(source.device) for tensor in self._tensors]

    def keep(self, sample: dict[str, Any], memory: list[Tensor] | None) -> None:
        """Keep what a model remembers after a batch.

        Args:
            sample: the batch.
            memory: a tensor (B, …) for each layer; None of a model without memory.
        """
        self._position = sample["position"] + sample["net_input"]["src_tokens"].size(1)
        self._tensors = None
        if sample["goes_on"] and memory is not None:
            self._tensors = [_sane(tensor.detach()) for tensor in memory]

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes, on the CPU."""
        return {"position": self._position, "tensors": self._tensors and [tensor.cpu() for tensor in self._tensors]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved memory."""
        self._position, self._tensors = state["position"], state["tensors"]


def _sane(tensor: Tensor) -> Tensor:
    # float16 can overflow in a forward pass whose update is then left out; its infinities must not stay for ever
    return tensor.nan_to_num(0.0, 0.0, 0.0) if tensor.dtype == torch.float16 else tensor

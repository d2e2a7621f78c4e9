"""A model's memory between the batches of a text that is read block after block."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


class CarriedMemory:
    """Keeps a model's memory after a batch for the next batch of the same rows.

    The memory is kept together with the position that it fits. It is not handed out for another position or another
    number of rows, as after a skipped batch or a change of ``--batch-size``; a warning says so.
    """

    def __init__(self) -> None:
        self._position = 0
        self._tensors: list[Tensor] | None = None

    def before(self, sample: dict[str, Any]) -> list[Tensor] | None:
        """The memory with which the model reads a batch.

        Args:
            sample: a batch of :class:`~fairseq_poolingformer.char_lm.text_stream.TextBlocks`.

        Returns:
            A tensor (B, …) for each layer, or None for an empty memory.
        """
        if not sample["continues"]:
            return None
        tokens = sample["net_input"]["src_tokens"]
        other_rows = bool(self._tensors) and self._tensors[0].size(0) != tokens.size(0)
        if self._position != sample["position"] or other_rows:
            logger.warning(
                "no saved memory fits byte %d (another position or batch size): starting with an empty one",
                sample["position"],
            )
            return None
        return self._tensors and [tensor.to(tokens.device) for tensor in self._tensors]

    def keep(self, sample: dict[str, Any], memory: list[Tensor] | None) -> None:
        """Keep the memory that a model returned for a batch.

        Args:
            sample: the batch.
            memory: a tensor (B, …) for each layer; None of a model without memory.
        """
        self._position = sample["position"] + sample["net_input"]["src_tokens"].size(1)
        self._tensors = None
        if sample["goes_on"] and memory is not None:
            self._tensors = [_finite(tensor.detach()) for tensor in memory]

    def state_dict(self) -> dict[str, Any]:
        """The state for :meth:`load_state_dict`, on the CPU."""
        return {"position": self._position, "tensors": self._tensors and [tensor.cpu() for tensor in self._tensors]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved memory."""
        self._position, self._tensors = state["position"], state["tensors"]


def _finite(tensor: Tensor) -> Tensor:
    # fairseq skips the update of a float16 forward pass that overflows, but its infinities would stay in the memory
    return tensor.nan_to_num(0.0, 0.0, 0.0) if tensor.dtype == torch.float16 else tensor

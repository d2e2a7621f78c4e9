"""Interface that :func:`~.recorded.look` asks of a model, whichever library it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Subject(ABC):
    """A model and its tokenizer."""

    model: nn.Module  # with :class:`~fairseq_poolingformer.attention.TwoLevelAttention` inside
    device: torch.device  # the model's
    writes: bool  # whether it writes summaries
    limit: int  # the most tokens of a document and of a summary, without ``<s>`` and ``</s>``
    summary_limit: int
    cross_attention: type[nn.Module]  # the class of the decoder's attention to the source

    @abstractmethod
    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a text, (T,), and their characters ``[start, end)``, (T, 2)."""

    @abstractmethod
    def framed(self, ids: np.ndarray) -> Tensor:
        """Return (1, T + 2) indices: ``<s>``, the tokens, ``</s>``."""

    @abstractmethod
    def summarize(self, text: str, title: str, **generation: Any) -> str:
        """Return the summary of a document; ``generation`` as the ``summarize`` of the model's library has it."""

    @abstractmethod
    def run(self, source: Tensor, previous: Tensor | None) -> None:
        """Run the model on a document, (1, S), and what its decoder reads, (1, T); None for a model without one."""

    @abstractmethod
    def cross_weights(self, module: nn.Module, *args: Any, **inputs: Any) -> Tensor | None:
        """Return the (1, H, T, S) weights of a call of ``cross_attention``; None if it is of self-attention."""

"""What :func:`~.recorded.look` asks of a model, whichever library it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Subject(ABC):
    """A model and its tokenizer.

    Attributes:
        model: with :class:`~fairseq_poolingformer.attention.TwoLevelAttention` inside.
        device: the model's.
        writes: whether it writes summaries.
        limit, summary_limit: the most tokens of a document and of a summary, without ``<s>`` and ``</s>``.
        cross_attention: the class of the decoder's attention to the source.
    """

    model: nn.Module
    device: torch.device
    writes: bool
    limit: int
    summary_limit: int
    cross_attention: type[nn.Module]

    @abstractmethod
    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a text, (T,), and their characters ``[start, end)``, (T, 2)."""

    @abstractmethod
    def framed(self, ids: np.ndarray) -> Tensor:
        """Return (1, T + 2) indices: ``<s>``, the tokens, ``</s>``."""

    @abstractmethod
    def summarize(self, text: str, title: str, **generation: Any) -> str:
        """Return the summary of a document; ``generation`` as :meth:`PoolingformerHubInterface.summarize` has it."""

    @abstractmethod
    def run(self, source: Tensor, previous: Tensor | None) -> None:
        """Run the model on a document, (1, S), and what its decoder reads, (1, T); None for a model without one."""

    @abstractmethod
    def cross_weights(self, module: nn.Module, *args: Any, **inputs: Any) -> Tensor | None:
        """Return the (1, H, T, S) weights of a call of ``cross_attention``; None if it is of self-attention."""

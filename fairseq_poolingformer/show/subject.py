"""A model of fairseq's hub interface and its tokenizer, as :func:`~.recorded.look` runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.models.hub import PoolingformerHubInterface, PoolingformerRobertaHubInterface
from fairseq_poolingformer.show.looks import characters
from fairseq_poolingformer.text.tokenizer_base import Tokenizer


class Subject:
    """The result of ``PoolingformerBART.from_pretrained`` or ``PoolingformerRoberta.from_pretrained``."""

    def __init__(self, hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface) -> None:
        self.hub, self.model, self.device = hub, hub.model, hub.device
        self.writes = isinstance(hub, PoolingformerHubInterface)
        # the most tokens of a document and of a summary, without <s> and </s>
        self.limit = hub.max_source_tokens if self.writes else hub.model.max_positions() - 2
        self.summary_limit = hub.model.decoder.max_positions() - 2 if self.writes else 0
        self.tokenizer = getattr(hub.bpe, "tokenizer", None)
        if not isinstance(self.tokenizer, Tokenizer):
            raise ValueError(
                "the model's --bpe does not tell where tokens lie: load it with a data folder's tokenizer/"
            )

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a text, (T,), and their characters ``[start, end)``, (T, 2)."""
        ids, starts, ends = self.tokenizer.encode_with_offsets(text)
        return ids, np.stack([characters(text, starts), characters(text, ends)], axis=1)

    def framed(self, ids: np.ndarray) -> Tensor:
        """Return (1, T + 2) indices: ``<s>``, the tokens, ``</s>``."""
        dictionary = self.hub.task.source_dictionary
        return torch.tensor([[dictionary.bos(), *ids.tolist(), dictionary.eos()]], device=self.device)

    def summarize(self, text: str, title: str, **generation: Any) -> str:
        """Return the summary of a document; ``generation`` as the hub's ``summarize`` has it."""
        (summary,) = self.hub.summarize(text, names=[title], **generation)
        return summary

    def run(self, source: Tensor, previous: Tensor | None) -> None:
        """Run the model on a document, (1, S), and what its decoder reads, (1, T); None for a model without one."""
        self.model(source, *(() if previous is None else (None, previous)), features_only=True)

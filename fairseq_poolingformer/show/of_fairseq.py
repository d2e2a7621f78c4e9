"""A model of fairseq's hub interface, as :func:`~.recorded.look` runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.models.decoder import CrossAttention
from fairseq_poolingformer.models.hub import PoolingformerHubInterface, PoolingformerRobertaHubInterface
from fairseq_poolingformer.show.looks import Subject, characters
from fairseq_poolingformer.text.tokenizer_base import Tokenizer


class OfFairseq(Subject):
    """The result of ``PoolingformerBART.from_pretrained`` or ``PoolingformerRoberta.from_pretrained``."""

    cross_attention = CrossAttention

    def __init__(self, hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface) -> None:
        self.hub, self.model, self.device = hub, hub.model, hub.device
        self.writes = isinstance(hub, PoolingformerHubInterface)
        self.limit = hub.max_source_tokens if self.writes else hub.model.max_positions() - 2
        self.summary_limit = hub.model.decoder.max_positions() - 2 if self.writes else 0
        self.tokenizer = getattr(hub.bpe, "tokenizer", None)
        if not isinstance(self.tokenizer, Tokenizer):
            raise ValueError(
                "the model's --bpe does not tell where tokens lie: load it with a data folder's tokenizer/"
            )

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        ids, starts, ends = self.tokenizer.encode_with_offsets(text)
        return ids, np.stack([characters(text, starts), characters(text, ends)], axis=1)

    def framed(self, ids: np.ndarray) -> Tensor:
        dictionary = self.hub.task.source_dictionary
        return torch.tensor([[dictionary.bos(), *ids.tolist(), dictionary.eos()]], device=self.device)

    def summarize(self, text: str, title: str, **generation: Any) -> str:
        (summary,) = self.hub.summarize(text, names=[title], **generation)
        return summary

    def run(self, source: Tensor, previous: Tensor | None) -> None:
        self.model(source, *(() if previous is None else (None, previous)), features_only=True)

    def cross_weights(self, module: CrossAttention, *args: Any, **inputs: Any) -> Tensor:
        return module.weights(inputs["query"], inputs["key"], inputs.get("key_padding_mask"))

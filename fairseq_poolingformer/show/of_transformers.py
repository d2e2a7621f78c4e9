"""A Poolingformer of transformers, as :func:`~.recorded.look` runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fairseq_poolingformer.huggingface.in_one_call import summarize
from fairseq_poolingformer.show.looks import Subject


class OfTransformers(Subject):
    """A model of :mod:`fairseq_poolingformer.huggingface`, with or without a head, and its tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                "a model of transformers is shown with a fast tokenizer, which tells where tokens lie: give "
                "tokenizer=AutoTokenizer.from_pretrained(…)"
            )
        self.whole, self.tokenizer, self.device = model, tokenizer, model.device
        self.model, config = model.base_model, model.config
        self.writes = config.is_encoder_decoder
        if config.model_type == "poolingformer-t5":
            raise ValueError(f"a {type(model).__name__} is not shown: it reads texts without <s>, which the page has")
        if self.writes:
            self.limit = config.max_position_embeddings - 2
            self.summary_limit = config.max_decoder_position_embeddings - 2
            self.cross_attention = type(self.model.decoder.layers[0].encoder_attn)
        else:
            self.limit, self.summary_limit, self.cross_attention = self.model.max_tokens - 2, 0, nn.Module

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return np.array(encoding["input_ids"]), np.array(encoding["offset_mapping"]).reshape(-1, 2)

    def framed(self, ids: np.ndarray) -> Tensor:
        config, tokenizer = self.whole.config, self.tokenizer
        if config.bos_token_id is None or config.eos_token_id is None:  # as BERT's
            first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
        else:
            first, last = config.bos_token_id, config.eos_token_id
        return torch.tensor([[first, *ids.tolist(), last]], device=self.device)

    def summarize(self, text: str, title: str, **generation: Any) -> str:
        if not self.whole.can_generate():
            raise ValueError(f"a {type(self.whole).__name__} writes no summary: give one with summary=")
        return summarize(text, self.whole, tokenizer=self.tokenizer, **generation)[0]

    def run(self, source: Tensor, previous: Tensor | None) -> None:
        self.model(source, **({} if previous is None else {"decoder_input_ids": previous}))

    def cross_weights(
        self, module: nn.Module, hidden_states: Tensor, key_value_states: Tensor | None = None, **unused: Any
    ) -> Tensor | None:
        if key_value_states is None:
            return None
        query, key = (
            projected.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
            for projected in (module.q_proj(hidden_states), module.k_proj(key_value_states))
        )
        return (query * module.scaling @ key.transpose(-1, -2)).float().softmax(-1)

"""Poolingformer-BART in Python: text in, summaries out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.hub_utils import GeneratorHubInterface
from omegaconf import open_dict
from torch import Tensor


class PoolingformerHubInterface(GeneratorHubInterface):
    """A checkpoint with its task and tokenizer, as :meth:`PoolingformerBART.from_pretrained` returns it.

    Unlike fairseq's BART interface it keeps as many source tokens as the encoder takes: that one cuts every source to
    the smaller of the encoder's and the decoder's lengths, 1,022 tokens.
    """

    def __init__(self, cfg, task, model) -> None:
        super().__init__(cfg, task, [model])
        self.model = model
        self.bpe = task.build_bpe(cfg.bpe)

    @property
    def max_source_tokens(self) -> int:
        """Tokens of a document that the encoder takes, ``<s>`` and ``</s>`` not counted."""
        return self.model.encoder.max_positions() - 2

    def encode(self, text: str) -> Tensor:
        """Token indices of a document, ``<s> … </s>``, cut to what the encoder takes: (T,).

        :meth:`count_tokens` tells beforehand whether a document is cut.
        """
        dictionary = self.task.source_dictionary
        tokens = dictionary.encode_line(self.bpe.encode(text), append_eos=False, add_if_not_exist=False).long()
        bos, eos = tokens.new_tensor([dictionary.bos()]), tokens.new_tensor([dictionary.eos()])
        return torch.cat([bos, tokens[: self.max_source_tokens], eos])

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole document, ``<s>`` and ``</s>`` not counted."""
        return len(self.bpe.encode(text).split())

    def decode(self, tokens: Tensor) -> str:
        """Text of token indices (T,); ``<s>`` and ``</s>`` are left out."""
        return self.bpe.decode(self.task.target_dictionary.string(tokens))

    def summarize(
        self,
        documents: Sequence[str],
        *,
        max_length: int = 256,
        min_length: int = 1,
        batch_size: int = 1,
        **generation: Any,
    ) -> list[str]:
        """Summaries of documents, in their order.

        Args:
            documents: texts; what is longer than ``max_source_tokens`` is cut.
            max_length, min_length: tokens of a summary, ``<s>`` and ``</s>`` not counted.
            batch_size: documents at a time.
            generation: fairseq's other generation options, e.g. ``beam=5, lenpen=2.0``.
        """
        with open_dict(self.cfg):
            # else batches are as large as the training's were
            self.cfg.dataset.batch_size, self.cfg.dataset.max_tokens = batch_size, None
        hypotheses = self.generate(
            [self.encode(text) for text in documents],
            max_len_b=max_length + 1,  # fairseq counts the <s> that every summary begins with
            min_len=min_length + 1,
            **generation,
        )
        return [self.decode(best[0]["tokens"]) for best in hypotheses]

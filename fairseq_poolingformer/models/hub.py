"""Models in Python: Poolingformer-BART turns text into summaries, Poolingformer-RoBERTa turns text into features."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from omegaconf import open_dict
from torch import Tensor

from fairseq_poolingformer.text.tokenizer_base import Tokenizer

logger = logging.getLogger(__name__)


class DictionaryBPE:
    """A data folder's tokenizer behind fairseq's interface for BPEs: text to a line of symbols and back."""

    def __init__(self, tokenizer: Tokenizer, dictionary: Dictionary) -> None:
        self.tokenizer, self.dictionary = tokenizer, dictionary

    def encode(self, text: str) -> str:
        """Symbols separated by spaces."""
        return " ".join(self.dictionary[index] for index in self.tokenizer.encode(text))

    def decode(self, line: str) -> str:
        """Text of symbols separated by spaces."""
        return self.tokenizer.decode([self.dictionary.index(symbol) for symbol in line.split()])


class PoolingformerHubInterface(GeneratorHubInterface):
    """A checkpoint with its task and tokenizer, as :meth:`PoolingformerBART.from_pretrained` returns it.

    fairseq's BART interface cuts every source to the smaller of the encoder's and the decoder's lengths, 1,022 tokens.
    This one keeps as many tokens as the encoder takes.
    """

    def __init__(self, cfg, task, model) -> None:
        super().__init__(cfg, task, [model])
        self.model = model
        self.bpe = task.build_bpe(cfg.bpe)
        if self.bpe is None:
            raise ValueError(
                f"{type(task).__name__} has no tokenizer: give a checkpoint of --task long_summarization with a data "
                "folder of poolingformer preprocess, or name a tokenizer of fairseq's to from_pretrained, such as "
                'bpe="gpt2", gpt2_encoder_json=PATH, gpt2_vocab_bpe=PATH'
            )

    @property
    def max_source_tokens(self) -> int:
        """Number of tokens that the encoder takes of a document, without ``<s>`` and ``</s>``."""
        return self.model.encoder.max_positions() - 2

    def encode(self, text: str) -> Tensor:
        """Encode a document as token indices ``<s> … </s>``, cut to what the encoder takes: (T,).

        A document is cut if :meth:`count_tokens` is above ``max_source_tokens``.
        """
        dictionary = self.task.source_dictionary
        tokens = dictionary.encode_line(self.bpe.encode(text), append_eos=False, add_if_not_exist=False).long()
        bos, eos = tokens.new_tensor([dictionary.bos()]), tokens.new_tensor([dictionary.eos()])
        return torch.cat([bos, tokens[: self.max_source_tokens], eos])

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a whole document, without ``<s>`` and ``</s>``."""
        return len(self.bpe.encode(text).split())

    def decode(self, tokens: Tensor) -> str:
        """Return the text of token indices (T,), without ``<s>`` and ``</s>``."""
        return self.bpe.decode(self.task.target_dictionary.string(tokens))

    def summarize(
        self,
        documents: str | Sequence[str],
        *,
        names: Sequence[str] | None = None,
        max_len_b: int = 256,
        min_len: int = 1,
        batch_size: int = 1,
        **generation: Any,
    ) -> list[str]:
        """Summarize documents, and log the name of each that is cut to ``max_source_tokens``.

        Args:
            documents: texts; one string is one document.
            names: the documents' names in the log; None for their numbers.
            max_len_b, min_len: tokens of a summary, ``<s>`` counted and ``</s>`` not, as fairseq-generate has them.
            batch_size: number of documents at a time.
            generation: fairseq's other generation options, e.g. ``beam=5, lenpen=2.0``.

        Returns:
            One summary for each document, in their order.
        """
        documents = [documents] if isinstance(documents, str) else documents
        names = [f"document {number}" for number in range(len(documents))] if names is None else names
        for name, text in zip(names, documents, strict=True):
            count, limit = self.count_tokens(text), self.max_source_tokens
            if count > limit:
                logger.warning(f"{name}: {count:,} tokens; the model reads the first {limit:,} ({limit / count:.0%})")
        with open_dict(self.cfg):
            # without this, batches would be as large as in training
            self.cfg.dataset.batch_size, self.cfg.dataset.max_tokens = batch_size, None
        hypotheses = self.generate(
            [self.encode(text) for text in documents], max_len_b=max_len_b, min_len=min_len, **generation
        )
        return [self.decode(best[0]["tokens"]) for best in hypotheses]


class PoolingformerRobertaHubInterface(RobertaHubInterface):
    """A checkpoint with its task and tokenizer, as :meth:`PoolingformerRoberta.from_pretrained` returns it.

    It adds to fairseq's RoBERTa interface the data folder's own tokenizer, global tokens, and inputs as long as the
    model takes. It cuts nothing. Call ``eval()`` for features without dropout, as in fairseq.

    Args:
        cfg: the checkpoint's settings.
        task: its task.
        model: the model.
        tokenizer: the data folder's.
    """

    def __init__(self, cfg, task, model, tokenizer: Tokenizer) -> None:
        super().__init__(cfg, task, model)
        self.tokenizer = tokenizer
        self.bpe = DictionaryBPE(tokenizer, task.source_dictionary)

    def encode(self, sentence: str, *addl_sentences: str, no_separator: bool = False) -> Tensor:
        """Encode a text as token indices ``<s> … </s>``, or several as ``<s> … </s> </s> … </s>``: (T,), never cut.

        Args:
            sentence: the text.
            addl_sentences: further texts.
            no_separator: put one ``</s>`` between two texts instead of two.
        """
        dictionary = self.task.source_dictionary
        separator = [] if no_separator else [dictionary.eos()]
        tokens = [dictionary.bos(), *self.tokenizer.encode(sentence), dictionary.eos()]
        for text in addl_sentences:
            tokens += [*separator, *self.tokenizer.encode(text), dictionary.eos()]
        return torch.tensor(tokens)

    def extract_features(
        self, tokens: Tensor, return_all_hiddens: bool = False, global_mask: Tensor | None = None
    ) -> Tensor | list[Tensor]:
        """Compute the features of tokens.

        Args:
            tokens: (T,) or (B, T) indices.
            return_all_hiddens: return the embedding's and every layer's output instead of the last layer's.
            global_mask: (B, T) bool, True at global tokens; None for the first ``--global-tokens`` ones.

        Returns:
            (B, T, C), or a list of them.

        Raises:
            ValueError: there are more tokens than the model takes.
        """
        tokens = tokens.unsqueeze(0) if tokens.dim() == 1 else tokens
        self._check_length(tokens.size(1))
        masks = {} if global_mask is None else {"global_mask": global_mask.to(self.device)}
        features, extra = self.model(
            tokens.to(self.device), features_only=True, return_all_hiddens=return_all_hiddens, **masks
        )
        return [state.transpose(0, 1) for state in extra["inner_states"]] if return_all_hiddens else features

    def _check_length(self, count: int) -> None:
        if count > self.model.max_positions():
            raise ValueError(
                f"{count} tokens, the model takes {self.model.max_positions()}: split the text, or load the model with "
                "a larger max_positions"
            )

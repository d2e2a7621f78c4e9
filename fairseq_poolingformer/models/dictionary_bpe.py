"""A data folder's tokenizer behind fairseq's interface for BPEs: text to a line of symbols and back."""

from __future__ import annotations

from fairseq.data import Dictionary

from fairseq_poolingformer.text.tokenizer_base import Tokenizer


class DictionaryBPE:
    """One of our tokenizers as a BPE of fairseq's command lines."""

    def __init__(self, tokenizer: Tokenizer, dictionary: Dictionary) -> None:
        self.tokenizer, self.dictionary = tokenizer, dictionary

    def encode(self, text: str) -> str:
        """Symbols separated by spaces."""
        return " ".join(self.dictionary[index] for index in self.tokenizer.encode(text))

    def decode(self, line: str) -> str:
        """Text of symbols separated by spaces."""
        return self.tokenizer.decode([self.dictionary.index(symbol) for symbol in line.split()])

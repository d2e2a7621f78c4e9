"""Generation: repeated n-grams where fairseq's CUDA extension is not built, and one hypothesis after several."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.patches.patching import replace


def apply() -> None:
    """Patch the blocking of repeated n-grams, and the number of hypotheses that a decoder knows of."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock
    from fairseq.sequence_generator import EnsembleModel

    replace(EnsembleModel, "set_decoder_beam_size", also_a_single_one)
    replace(NGramRepeatBlock, "_no_repeat_ngram", repeats_blocked)


def also_a_single_one(original: Callable) -> Callable:
    """Tell decoders of a greedy search, too: fairseq's would go on with the number of the search before."""

    def set_decoder_beam_size(self: Any, beam_size: int) -> None:
        for model in self.models:
            if hasattr(model, "set_beam_size"):
                model.set_beam_size(beam_size)

    return set_decoder_beam_size


def repeats_blocked(original: Callable) -> Callable:
    """Ban the tokens that would repeat an n-gram of the hypothesis.

    The search hands over its whole buffer of tokens, most of it still padding, and fairseq's fallback in Python takes
    the end of that buffer for the end of the hypothesis: nothing is ever banned. Its loops also move every token to the
    CPU at each step, which this does not.
    """

    def _no_repeat_ngram(self: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int) -> Tensor:
        size = self.no_repeat_ngram_size
        written = tokens[:, : step + 1]
        if written.size(1) < size:
            return lprobs
        ngrams = written.unfold(1, size, 1)  # (rows, number of n-grams, size)
        latest = written[:, None, written.size(1) - size + 1 :]
        repeated = (ngrams[:, :, :-1] == latest).all(-1)
        repeated &= ngrams[:, :, -1] != tokens[:, :1]  # the search begins with </s>, which must stay possible
        ceiling = torch.where(repeated, -torch.inf, torch.inf).to(lprobs)
        return lprobs.scatter_reduce_(1, ngrams[:, :, -1], ceiling, "amin")

    return _no_repeat_ngram

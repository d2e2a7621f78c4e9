"""What fairseq computes wrongly, or only on a GPU: repeated n-grams, averages, half precision on a CPU."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


def set_decoder_beam_size(self: Any, beam_size: int) -> None:
    """Tell decoders of a greedy search, too: fairseq's would go on with the number of the search before."""
    for model in self.models:
        if hasattr(model, "set_beam_size"):
            model.set_beam_size(beam_size)


def _no_repeat_ngram(self, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int) -> Tensor:
    """Ban the tokens that would repeat an n-gram of the hypothesis; TorchScript compiles this function, by its name.

    The search hands over its whole buffer of tokens, most of it still padding, and fairseq's fallback in Python takes
    the end of that buffer for the end of the hypothesis: nothing is ever banned. Its loops also move every token to the
    CPU at each step, which this does not.
    """
    size: int = self.no_repeat_ngram_size
    written = tokens[:, : step + 1]
    if written.size(1) < size:
        return lprobs
    ngrams = written.unfold(1, size, 1)  # (rows, number of n-grams, size)
    latest = written[:, written.size(1) - size + 1 :].unsqueeze(1)
    repeated = (ngrams[:, :, :-1] == latest).all(-1)
    repeated &= ngrams[:, :, -1] != tokens[:, :1]  # the search begins with </s>, which must stay possible
    ceiling = torch.where(repeated, float("-inf"), float("inf")).to(lprobs)
    return lprobs.scatter_reduce_(1, ngrams[:, :, -1], ceiling, "amin")


def copy_integer_buffers(
    original: Callable, self: Any, model: Any, config: Any, device: Any = None, skip_keys: Any = None
) -> None:
    """Let ``--store-ema`` train a model with integer buffers, which the average takes over from the model.

    fairseq multiplies every entry of the state dict by the decay in place, and torch refuses that for integers: the
    first update of a model with a count among its buffers ended in a RuntimeError.
    """
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    integers = {name for name, value in tensors.items() if not value.is_floating_point()}
    original(self, model, config, device, integers | set(skip_keys or ()))


def leave_fp16_unflattened_on_cpu(original: Callable, cls: type, cfg: Any, params: Iterable, **kwargs: Any) -> Any:
    """Let ``--fp16`` train on a CPU, by turning on ``--fp16-no-flatten-grads`` there.

    fairseq keeps the float32 copy of the parameters in one flat tensor per CUDA device, and asks CUDA which device that
    is even when the parameters are on the CPU. Copies that are not flat give the same updates.
    """
    from omegaconf import open_dict

    params = list(params)
    on_cpu = all(param.device.type == "cpu" for param in params)
    if on_cpu and not cfg.common.bf16 and not cfg.common.fp16_no_flatten_grads:
        logger.info("parameters are on the CPU: --fp16 uses --fp16-no-flatten-grads")
        with open_dict(cfg.common):
            cfg.common.fp16_no_flatten_grads = True
    return original(cls, cfg, params, **kwargs)

"""Computations that fairseq does wrongly, or only on a GPU, or not beside one."""

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
    """Ban the tokens that would repeat an n-gram of the hypothesis; TorchScript compiles this function, by its name."""
    # fairseq's fallback takes the end of the search's buffer for that of the hypothesis: nothing is ever banned
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
    """Copy a model's integer buffers into the average of ``--store-ema``, where fairseq multiplies by the decay."""
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    integers = {name for name, value in tensors.items() if not value.is_floating_point()}
    original(self, model, config, device, integers | set(skip_keys or ()))


def leave_fp16_unflattened_on_cpu(original: Callable, cls: type, cfg: Any, params: Iterable, **kwargs: Any) -> Any:
    """Turn on ``--fp16-no-flatten-grads`` on a CPU, so that ``--fp16`` trains there; the updates are the same."""
    from omegaconf import open_dict

    params = list(params)
    on_cpu = all(param.device.type == "cpu" for param in params)
    if on_cpu and not cfg.common.bf16 and not cfg.common.fp16_no_flatten_grads:
        logger.info("parameters are on the CPU: --fp16 uses --fp16-no-flatten-grads")
        with open_dict(cfg.common):
            cfg.common.fp16_no_flatten_grads = True
    return original(cls, cfg, params, **kwargs)


def clip_where_the_gradients_are(
    original: Callable, params: Tensor | Iterable[Tensor], max_norm: float, aggregate_norm_fn: Callable | None = None
) -> Tensor:
    """Clip gradients on their own device, so that ``--cpu`` trains beside a GPU, where fairseq puts the norm."""
    params = [params] if isinstance(params, Tensor) else list(params)
    devices = [param.grad.device for param in params if param.grad is not None]

    def aggregate(norm: Tensor) -> Tensor:
        norm = norm if aggregate_norm_fn is None else aggregate_norm_fn(norm)
        return norm.to(devices[0])

    return original(params, max_norm, aggregate)

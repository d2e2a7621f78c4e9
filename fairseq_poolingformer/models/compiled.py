"""``--compile-layers``: torch.compile for the encoder's layers in training, with one graph for all layers of a kind."""

from __future__ import annotations

import argparse
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag; it is no setting of a model, and no checkpoint has it."""
    parser.add_argument(
        "--compile-layers",
        nargs="?",
        const="default",
        choices=("default", "reduce-overhead"),
        default=argparse.SUPPRESS,
        help="in training, run the encoder's layers by torch.compile (reduce-overhead: as CUDA graphs, one a length); "
        "no GPU has run either yet",
    )


def compiled(layer: nn.Module, cfg: Any) -> nn.Module:
    """``layer``, whose forward pass is a graph in training; ``ValueError`` where another flag does not go with that."""
    as_cuda_graphs = cfg.compile_layers == "reduce-overhead"  # whose next run overwrites what a graph has returned
    others = {
        "--relative-attention, whose scores no graph holds": getattr(layer, "relative_projections", None) is not None,
        "--offload-activations, which moves a graph's inputs": cfg.offload_activations,
        "--ddp-backend fully_sharded, which replaces parameters": getattr(cfg, "ddp_backend", None) == "fully_sharded",
        "--checkpoint-activations, which runs a graph twice": as_cuda_graphs and cfg.checkpoint_activations,
        "an --update-freq that is not 1, or not known here": as_cuda_graphs and getattr(cfg, "update_freq", 0) != [1],
    }
    for reason in (reason for reason, applies in others.items() if applies):
        raise ValueError(f"--compile-layers {cfg.compile_layers} and {reason}, do not go together: leave one out")
    layer.forward = partial(_forward, layer, repr(layer), cfg.compile_layers)  # whose parameters keep their names
    return layer


def _forward(layer: nn.Module, kind: str, mode: str, x: Tensor, **named: Any) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, x, **named)
    if not torch.is_grad_enabled():  # the first of two passes: inputs of later layers would need no gradients
        x = x.detach()
    if x.stride() != (x.size(1) * x.size(2), x.size(2), 1):  # contiguous() would leave those of a single row
        x = x.clone(memory_format=torch.contiguous_format)
    torch._dynamo.maybe_mark_dynamic(x, (0, 1))
    try:
        return _graphs(type(layer).forward, kind, mode)(layer, x, **named)
    except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise RuntimeError(
            f"--compile-layers: torch.compile gave up on {type(layer).__name__} ({reason}); leave the flag out"
        ) from error


@cache
def _graphs(forward: FunctionType, kind: str, mode: str) -> Any:
    """``forward`` compiled for the layers of a kind, whose graphs count towards a limit of their own."""
    code = forward.__code__.replace()  # graphs, and their greatest number, belong to a code object
    function = FunctionType(code, forward.__globals__, forward.__name__, forward.__defaults__)
    # with fullgraph, reaching the limit is an error
    return torch.compile(function, fullgraph=True, dynamic=True, mode=mode)

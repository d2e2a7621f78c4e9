"""ModernBERT of transformers: its own ``sdpa``, ``attn_implementation="band"`` and level two, by length.

    python benchmarks/hosts.py [--lengths 2048 8192 32768] [--passes forward step] [--layers 22] [--global-every 3]
    python benchmarks/hosts.py --implementations "level two" --passes forward --lengths 8192 32768 131072

The shape is ModernBERT-base's, with random weights: d 768, 12 heads, a window of 64 tokens on each side in two of
three layers, full attention in the others, which ``sdpa`` and ``band`` leave to PyTorch's kernel, while ``level two``
has the two levels there with the package's defaults; ``--global-every 0`` has windows alone. ``forward`` computes no
gradients; ``step`` is forward and backward. Nothing is timed before all agree, level two with full attention in its
place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from measure import DTYPES, Case, add_arguments, measure, must_agree, parse, print_header, print_table
from torch import Tensor
from transformers import ModernBertConfig, ModernBertModel

from fairseq_poolingformer.huggingface import PoolingformerModernBertModel  # registers band too

IMPLEMENTATIONS = ("sdpa", "band", "level two")


def encoder(args: argparse.Namespace, implementation: str, length: int, **levels: str) -> ModernBertModel:
    """The model, with the same weights for each implementation; ``levels`` are settings of the two levels."""
    is_full = [args.global_every and layer % args.global_every == 0 for layer in range(args.layers)]
    kinds = ["full_attention" if full else "sliding_attention" for full in is_full]
    config = ModernBertConfig(num_hidden_layers=args.layers, layer_types=kinds, max_position_embeddings=length)
    torch.manual_seed(0)
    own = implementation if implementation != "level two" else "sdpa"
    model = ModernBertModel._from_config(config, attn_implementation=own)
    if implementation == "level two":
        model = PoolingformerModernBertModel.from_short(model, **levels)
    return model.to(args.device, getattr(torch, args.dtype)).eval()


def run(model: ModernBertModel, tokens: Tensor, step: bool) -> float:
    """A pass; returns a number of the result."""
    with torch.set_grad_enabled(step):
        found = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
        if step:
            model.zero_grad()
            found.float().square().mean().backward()
    return found[0, 0, 0].item()


def build(args: argparse.Namespace, implementation: str, length: int, step: bool) -> Callable[[], Any]:
    """A case's model and tokens."""
    tokens = torch.randint(100, 50000, (1, length), generator=torch.Generator().manual_seed(1)).to(args.device)
    return partial(run, encoder(args, implementation, length), tokens, step)


def check(args: argparse.Namespace, length: int = 512) -> None:
    """All must give the same vectors, with padding too."""
    tokens = torch.randint(100, 50000, (2, length), device=args.device)
    is_token = torch.ones_like(tokens)
    is_token[1, length // 2 :] = 0
    full = {"window_size": "all", "pooled_layers": "none"}
    with torch.no_grad():
        own, *others = (encoder(args, n, length, **full)(tokens, is_token)[0][is_token.bool()] for n in IMPLEMENTATIONS)
    for name, ours in zip(IMPLEMENTATIONS[1:], others, strict=True):
        must_agree(name, ours, own, 1e-4 if args.dtype == "float32" else 0.2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each pass and length."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--lengths", type=int, nargs="+", default=[2048, 8192, 32768], metavar="N")
    add("--implementations", nargs="+", choices=IMPLEMENTATIONS, default=list(IMPLEMENTATIONS))
    add("--passes", nargs="+", choices=("forward", "step"), default=["forward", "step"])
    add("--layers", type=int, default=22)
    add("--global-every", type=int, default=3, metavar="N", help="0: no layer with full attention")
    add("--dtype", default="float32", choices=DTYPES)
    add_arguments(parser, repeats=3)
    args = parse(parser, arguments)
    check(args)
    print_header(
        args,
        f"ModernBERT-base's shape, {args.layers} layers, full attention in one of {args.global_every}, {args.dtype}",
    )
    for name in args.passes:
        for length in args.lengths:
            print(f"\n{name}, {length} tokens")
            cases = [Case(kind, partial(build, args, kind, length, name == "step")) for kind in args.implementations]
            print_table(measure(cases, args), tokens=length)


if __name__ == "__main__":
    main()

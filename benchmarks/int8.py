"""An encoder whose linear layers compute in int8 beside itself in float32: seconds, memory and the cosine of vectors.

    python benchmarks/int8.py [--lengths 512 4096] [--threads 1]

The shape is RoBERTa-base's with level two in layers 6 to 8, the paper's windows, weights from N(0, 0.02²). Weights are
quantized a row at a time, inputs a tensor at a time while it runs. ``torchao`` has a row where it is installed.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from measure import Case, Result, add_arguments, measure, parse, print_header, print_table
from torch import Tensor, nn

from fairseq_poolingformer.huggingface import PoolingformerRobertaConfig, PoolingformerRobertaModel

LEAST_COSINE = 0.999


def encoder(args: argparse.Namespace) -> PoolingformerRobertaModel:
    """The model in float32."""
    torch.manual_seed(0)
    half = args.layers // 2
    config = PoolingformerRobertaConfig(
        num_hidden_layers=args.layers,
        pooled_layers=f"{half}-{max(half, 3 * args.layers // 4 - 1)}",  # 6-8 of 12
        max_position_embeddings=max(512, *args.lengths) + 2,
    )
    return PoolingformerRobertaModel(config, add_pooling_layer=False).eval()


def quantized(model: nn.Module, kind: str) -> nn.Module:
    """A copy with int8 linear layers; the model itself for ``float32``."""
    if kind == "float32":
        return model
    model = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that this will move to torchao
        if kind == "int8":
            from torch.ao import quantization

            return quantization.quantize_dynamic(model, {nn.Linear: quantization.per_channel_dynamic_qconfig})
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def vectors(model: nn.Module, tokens: Tensor) -> Tensor:
    """(B, T, C)."""
    with torch.inference_mode():
        return model(input_ids=tokens).last_hidden_state


def draw(length: int) -> Tensor:
    """(1, T) tokens."""
    return torch.randint(4, 50000, (1, length), generator=torch.Generator().manual_seed(1))


def build(args: argparse.Namespace, kind: str, length: int) -> Callable[[], Any]:
    """A case's model and tokens; what it returns is the vector of the text."""
    model, tokens = quantized(encoder(args), kind), draw(length)
    return lambda: vectors(model, tokens).mean(1)[0].tolist()


def cosine(result: Result, expected: Result) -> str:
    """Of a text's vector with that of float32."""
    return f"{F.cosine_similarity(torch.tensor(result.value), torch.tensor(expected.value), dim=0):.5f}"


def check(args: argparse.Namespace, kinds: Sequence[str], length: int = 512) -> None:
    """Refuse to time what gives other vectors.

    Raises:
        SystemExit: a token's vector has a cosine below 0.999 with that of float32.
    """
    model, tokens = encoder(args), draw(length)
    expected = vectors(model, tokens)
    for kind in kinds[1:]:
        least = F.cosine_similarity(vectors(quantized(model, kind), tokens), expected, dim=-1).min().item()
        print(f"{kind}: least cosine of {length} tokens' vectors {least:.5f}")
        if not least >= LEAST_COSINE:
            raise SystemExit(f"{kind}: the cosine is {least:.5f}, less than {LEAST_COSINE}; nothing is timed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each length."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 4096], metavar="N")
    parser.add_argument("--layers", type=int, default=12)
    add_arguments(parser, repeats=3)
    args = parse(parser, arguments)
    kinds = ["float32", "int8"] + ["torchao"] * (importlib.util.find_spec("torchao") is not None)
    check(args, kinds)
    print_header(args, f"RoBERTa-base's shape, {args.layers} layers, forward")
    for length in args.lengths:
        print(f"\n{length} tokens")
        results = measure([Case(kind, partial(build, args, kind, length)) for kind in kinds], args)
        print_table(results, tokens=length, columns={"cosine": partial(cosine, expected=results[0])})


if __name__ == "__main__":
    main()

"""Whole models of transformers with random weights: their own ``sdpa`` and FlexAttention beside ``band``, by length.

    python benchmarks/hosts.py --hosts modernbert-base --lengths 8192 --thread-counts 1 2 --alone
    python benchmarks/hosts.py --hosts all --lengths 2048 8192 32768 --dtypes float32 bfloat16

Sizes are the published models' (of UltraBERT the number and width of layers are chosen to give its 150 million
parameters). EuroBERT, LFM2.5's encoder and Qwen 3 have no windows: ``band`` gives their layers to ``sdpa``, and their
rows are there to be compared with. ``forward`` computes no gradients; ``step`` is forward and backward, of the sum of
squares. Nothing is timed before all implementations give the same vectors for rows with and without padding, through
the first six layers, with windows of at most 16 tokens a side in a text of 400: as near to those of sdpa in double
precision as sdpa's own are. FlexAttention compiles in its first run, so give it a warm-up.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from measure import DTYPES, GIB, Case, Result, add_arguments, measure, must_agree, parse, print_header, print_table
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedConfig, PreTrainedModel

import fairseq_poolingformer.band  # noqa: F401  # registers its name

IMPLEMENTATIONS = ("sdpa", "flex_attention", "band")
LARGE = "mistral-7b"  # 28 GB in float32: give it --layers
CHECKED_LENGTH, CHECKED_WINDOW = 400, 16  # several blocks of queries
CHECKED_LAYERS = 6  # of each kind; with random weights, the 24 of EmbeddingGemma 2 make roundings 100,000 times larger
NEARLY = 4  # times the error of sdpa
LFM_LAYERS = ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]


@dataclass(frozen=True)
class Host:
    """A model of transformers: its type, the sizes that differ from the type's defaults, what it is in words."""

    kind: str
    what: str
    sizes: dict[str, Any] = field(default_factory=dict)


HOSTS = {
    "modernbert-base": Host("modernbert", "14 of 22 layers see 64 tokens a side"),
    "embeddinggemma-300m": Host(
        "gemma3_text",
        "20 of 24 layers see 256 tokens a side",
        {
            **{"hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3},
            **{"num_key_value_heads": 1, "sliding_window": 512, "use_bidirectional_attention": True},
        },
    ),
    "embeddinggemma-2": Host("embedding_gemma2_text", "20 of 24 layers see 512 tokens a side"),
    "ultrabert-150m": Host(
        "ultrabert",
        "12 of 18 layers see 128 tokens a side",
        {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 12},
    ),
    "eurobert-210m": Host("eurobert", "12 layers of full attention"),
    "lfm2.5-encoder-350m": Host(
        "lfm2",
        "10 of 16 layers are short convolutions, 6 full attention",
        {
            **{"hidden_size": 1024, "intermediate_size": 6656, "num_hidden_layers": 16, "num_attention_heads": 16},
            **{"num_key_value_heads": 8, "layer_types": LFM_LAYERS, "is_causal": False},
        },
    ),
    "gemma3-270m": Host(
        "gemma3_text",
        "causal; 15 of 18 layers see 512 tokens",
        {
            **{"hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4},
            **{"num_key_value_heads": 1, "sliding_window": 512},
        },
    ),
    "mistral-7b": Host("mistral", "causal; 32 layers see 4,096 tokens"),
    "qwen3-0.6b": Host(
        "qwen3",
        "causal; 28 layers of full attention",
        {
            **{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
            **{"num_key_value_heads": 8},
        },
    ),
}


def configuration(args: argparse.Namespace, host: str) -> PreTrainedConfig:
    """The host's, cut to the layers that are asked for."""
    config = CONFIG_MAPPING[HOSTS[host].kind](**HOSTS[host].sizes)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:  # the layers are all alike
        all_alike = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
        kinds = [all_alike] * config.num_hidden_layers
    if args.only_windows:
        kinds = [kind for kind in kinds if kind == "sliding_attention"]
    config.num_hidden_layers = min(len(kinds), args.layers or len(kinds))
    if hasattr(config, "layer_types"):
        config.layer_types = kinds[: config.num_hidden_layers]
    return config


def build_model(config: PreTrainedConfig, implementation: str, dtype: str, device: str) -> PreTrainedModel:
    """The model, with the same weights for each implementation."""
    torch.manual_seed(0)
    model = AutoModel.from_config(config, attn_implementation=implementation, dtype=getattr(torch, dtype))
    if not getattr(config, "is_causal", True):  # LFM2's layers ask themselves, and not the configuration
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = False
    return model.to(device).eval()


def run(model: PreTrainedModel, tokens: Tensor, step: bool) -> float:
    """A pass; returns a number of the result."""
    with torch.set_grad_enabled(step):
        found = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).last_hidden_state
        if step:
            model.zero_grad()
            found.float().square().mean().backward()
    return found[0, 0, 0].item()


def build(args: argparse.Namespace, host: str, implementation: str, dtype: str, length: int, step: bool) -> Callable:
    """A case's model and tokens."""
    config = configuration(args, host)
    model = build_model(config, implementation, dtype, args.device)
    if step and args.checkpoint_activations:
        model.train().gradient_checkpointing_enable({"use_reentrant": False})
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(10, min(config.vocab_size, 30000), (1, length), generator=draw).to(args.device)
    return partial(run, model, tokens, step)


def check(args: argparse.Namespace, host: str, dtype: str) -> list[str]:
    """All must give the same vectors, at padding too; returns those that run, and says which does not."""
    tokens = torch.randint(10, 30000, (2, CHECKED_LENGTH), device=args.device)
    is_token = torch.ones_like(tokens)
    is_token[1, CHECKED_LENGTH // 2 :] = 0
    few = argparse.Namespace(**vars(args) | {"layers": min(args.layers or CHECKED_LAYERS, CHECKED_LAYERS)})

    def build_few(name: str) -> PreTrainedModel:
        config = configuration(few, host)
        if getattr(config, "sliding_window", None):
            setattr(config, "local_attention" if host == "modernbert-base" else "sliding_window", CHECKED_WINDOW)
        return build_model(config, name, dtype, args.device)

    def vectors(model: PreTrainedModel) -> Tensor:
        with torch.no_grad():
            return model(tokens, is_token, use_cache=False).last_hidden_state[is_token.bool()].double()

    sdpa, running = build_few("sdpa"), []
    own, exact = vectors(sdpa), vectors(sdpa.double())
    tolerance = NEARLY * (own - exact).abs().max().item()
    for name in args.implementations:
        try:
            found = own if name == "sdpa" else vectors(build_few(name))
            must_agree(f"{host}: {name}", found, exact, tolerance)
            running.append(name)
        except (RuntimeError, ValueError) as error:  # a compiler's
            if name != "flex_attention":
                raise
            print(f"{host}: {name} is left out: it does not run here: {str(error).splitlines()[0]}")
    return running


def row(what: Sequence[object], results: Sequence[Result]) -> str:
    """A line of Markdown: seconds by the clock, median [least, greatest], and GiB, of each implementation."""
    cells = dict.fromkeys(IMPLEMENTATIONS, "–")
    for result in results:
        wall = sorted(result.wall)
        seconds = f"{wall[len(wall) // 2]:.3g} [{wall[0]:.3g}, {wall[-1]:.3g}]" if wall else ""
        cells[result.name] = result.failure or f"{seconds}, {result.peak / GIB:.1f}"
    return "| " + " | ".join([*map(str, what), *cells.values()]) + " |"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = found.add_argument
    add("--hosts", nargs="+", choices=[*HOSTS, "all"], default=["modernbert-base"], help=f"all: but {LARGE}")
    add("--lengths", type=int, nargs="+", default=[2048, 8192, 32768], metavar="N", help="tokens")
    add("--implementations", nargs="+", choices=IMPLEMENTATIONS, default=list(IMPLEMENTATIONS))
    add("--passes", nargs="+", choices=("forward", "step"), default=["forward", "step"])
    add("--layers", type=int, metavar="N", help="the first N layers alone (default: all)")
    add("--only-windows", action="store_true", help="leave out the layers with full attention")
    add("--dtypes", nargs="+", choices=DTYPES, default=["float32"])
    add("--checkpoint-activations", action="store_true", help="compute each layer again in the backward pass of a step")
    add("--thread-counts", type=int, nargs="+", metavar="N", help="in the place of --threads: one after the other")
    add_arguments(found, repeats=3)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each case, and one of all of them in Markdown."""
    args = parse(parser(), arguments)
    hosts = [host for host in HOSTS if host != LARGE] if "all" in args.hosts else args.hosts
    for host in hosts:
        if not configuration(args, host).num_hidden_layers:
            raise SystemExit(f"--only-windows: {host} has no layer with a window")
    counts, rows = args.thread_counts or [args.threads], []
    for host, dtype in itertools.product(hosts, args.dtypes):
        found = check(args, host, dtype)
        layers = f"{configuration(args, host).num_hidden_layers}{' with windows' * args.only_windows}"
        for threads, name, length in itertools.product(counts, args.passes, args.lengths):
            kinds = found
            if name == "step" and args.device == "cpu":  # FlexAttention has no backward pass on a CPU
                kinds = [kind for kind in found if kind != "flex_attention"]
            one = argparse.Namespace(**vars(args) | {"threads": threads})
            print()
            print_header(one, f"{host} ({HOSTS[host].what}), layers: {layers}, {dtype}, {name}, {length} tokens")
            cases = [Case(kind, partial(build, args, host, kind, dtype, length, name == "step")) for kind in kinds]
            results = measure(cases, one)
            print_table(results, tokens=length)
            rows.append(row((host, layers, dtype, threads, name, length), results))
    print("\n| host | layers | dtype | threads | pass | tokens |", *(f"{name} |" for name in IMPLEMENTATIONS))
    print("|---" * (6 + len(IMPLEMENTATIONS)) + "|")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()

"""``poolingformer-eval-mlm``: bits per masked token by the distance to the nearest repetition of its word."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

from fairseq_poolingformer.cli.models import add_device_options, batches, load_models
from fairseq_poolingformer.command import UsageError, add_user_dir, aligned, positive, run_command, take_user_dir
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from fairseq_poolingformer.text.masking import NONE, nearest_repetitions
from fairseq_poolingformer.text.tokenizers import load_tokenizer

_EPILOG = """\
A layer of level one reaches w1 tokens on each side, a layer of level two w2: level two can help most where the nearest
other occurrence of a word is between w1 and w2 tokens away. Masked occurrences do not count. "none" are words that are
not repeated, and punctuation. Masks and blocks are those of validation in training, so "all" is its valid_loss. Only
models with the same data folder, block length and masks can be compared.

example:
  poolingformer-eval-mlm data-bin/wiki --model level_one/checkpoint_best.pt two_levels/checkpoint_best.pt \\
      --distances 128 512 --output bits.json --plot bits.png
"""
_ROWS = 512  # tokens whose logits are in memory at a time


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, take_user_dir(sys.argv[1:] if arguments is None else arguments))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-eval-mlm",
        description="Bits per masked token of a split, by the distance to the nearest other occurrence of its word.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, help="data folder of poolingformer-preprocess wikipedia or plain_text")
    text = "checkpoints of task long_masked_lm, one row each"
    add("--model", "--path", dest="path", nargs="+", required=True, metavar="MODEL", help=text)
    add("--subset", default="valid", help="split to evaluate (default: %(default)s)")
    text = "upper limits of the classes in tokens, such as w1 and w2 (default: 128 512)"
    add("--distances", type=positive, nargs="+", default=[128, 512], metavar="N", help=text)
    text = "count tokens of words of at least N tokens; 2: of words that the vocabulary has no symbol for, such as "
    text += "names (default: all)"
    add("--min-word-tokens", type=positive, default=1, metavar="N", help=text)
    add("--block-tokens", type=positive, metavar="N", help="tokens of a block (default: as in training)")
    add("--max-tokens", type=positive, default=16384, metavar="N", help="tokens of a batch (default: %(default)s)")
    add_user_dir(parser)
    add_device_options(parser)
    add("--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--plot", type=Path, metavar="FILE", help="plot bits by distance; needs matplotlib")
    return parser


def run(args: argparse.Namespace) -> None:
    """Evaluate the checkpoints; print the table, write the JSON and the plot."""
    limits = args.distances
    if limits != sorted(set(limits)):
        raise UsageError(f"--distances must ascend, got {' '.join(map(str, limits))}")
    results = []
    for path in args.path:
        distances, nll = evaluate(path, args)
        by_class = summarize(distances, nll, limits)
        farthest = int(distances.max(initial=1))
        octaves = summarize(distances, nll, [2**k for k in range(1, 1 + farthest.bit_length())])
        results.append({"checkpoint": path, "subset": args.subset, "classes": by_class, "octaves": octaves})
    print(table(results), flush=True)  # first, so that the work is not lost when a file cannot be written
    if args.output:
        write_lines(args.output, [json.dumps(results, indent=1)])
    if args.plot:
        plot(results, args.plot)


def evaluate(path: str, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """(M,) the distances of a split's masked tokens that count, and (M,) their negative log-likelihoods in nats."""
    (model,), task = load_models([path], args.device, args.precision, task="long_masked_lm", data=args.data)
    if args.block_tokens:
        task.cfg.block_tokens = args.block_tokens
        longest = model.max_positions()
        if args.block_tokens > longest:
            raise ValueError(f"--block-tokens {args.block_tokens}: {path} takes at most {longest} tokens")
    task.load_dataset(args.subset)
    dataset = task.dataset(args.subset)
    texts = load_tokenizer(args.data).symbol_texts()
    texts += [b""] * (len(task.dictionary) - len(texts))
    distances, nll, lengths = [], [], []
    for numbers in tqdm(batches(dataset.sizes, args.max_tokens), unit="batch", disable=None):
        items = [dataset[number] for number in numbers]
        nll.append(score(model, dataset.collater(items), args.device))
        for item in items:
            tokens, target = item["tokens"].numpy(), item["target"].numpy()
            masked = target != dataset.dictionary.pad()
            original = np.where(masked, target, tokens)
            words = dataset.masking.symbols.words(original)
            distances.append(nearest_repetitions(original, words, tokens == original, texts)[masked])
            lengths.append(np.bincount(words)[words[masked]])
    if not distances:
        raise ValueError(f"{args.data}: the split {args.subset!r} has no block")
    counts = np.concatenate(lengths) >= args.min_word_tokens
    return np.concatenate(distances)[counts], np.concatenate(nll)[counts]


@torch.inference_mode()
def score(model: nn.Module, batch: dict[str, Any], device: str) -> np.ndarray:
    """(M,) the negative log-likelihood of a batch's masked tokens in nats, row by row."""
    features, _ = model(batch["net_input"]["src_tokens"].to(device), features_only=True)
    positions = batch["masked_positions"].to(device)
    rows, target = features.flatten(0, 1)[positions], batch["target"].to(device).flatten()[positions]
    parts = [
        F.cross_entropy(model.encoder.lm_head(some).float(), wanted, reduction="none")
        for some, wanted in zip(rows.split(_ROWS), target.split(_ROWS), strict=True)
    ]
    return torch.cat(parts).double().cpu().numpy() if parts else np.empty(0)


def summarize(distances: np.ndarray, nll: np.ndarray, limits: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens and bits per token of each class of distances."""
    edges = [0, *limits, math.inf]
    chosen = [("all", np.ones(len(nll), dtype=bool)), ("none", distances == NONE)]
    for low, high in itertools.pairwise(edges):
        name = f"> {low}" if high == math.inf else f"<= {high}" if not low else f"{low + 1}-{high}"
        chosen.append((name, (distances > low) & (distances <= high)))
    return [
        {
            "distance": name,
            "tokens": int(which.sum()),
            "bits_per_token": float(nll[which].mean()) / math.log(2) if which.any() else None,
        }
        for name, which in chosen
    ]


def table(results: Sequence[dict[str, Any]]) -> str:
    """The classes as columns: their tokens, and a row of bits per token for each checkpoint."""
    rows = [["distance in tokens", *(row["distance"] for row in results[0]["classes"])]]
    rows.append(["masked tokens", *(f"{row['tokens']:,}" for row in results[0]["classes"])])
    for result in results:
        bits = (row["bits_per_token"] for row in result["classes"])
        rows.append([result["checkpoint"], *("-" if value is None else f"{value:.3f}" for value in bits)])
    return aligned(rows)


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw bits per token by distance, a line for each checkpoint."""
    with needing("plot"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="distance to the nearest repetition, tokens", ylabel="bits per masked token")
    for result in results:
        octaves = [(k, row["bits_per_token"]) for k, row in enumerate(result["octaves"][2:], 1)]
        shown = [(2**k, bits) for k, bits in octaves if bits is not None]
        axes.plot(*zip(*shown, strict=True), marker="o", label=result["checkpoint"])
    axes.set_xscale("log", base=2)
    axes.legend()
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix.lstrip(".") or "png")

"""Bits per masked token of a split, by the distance to the nearest other occurrence of its word.

A layer of level one reaches w1 tokens on each side, a layer of level two w2: level two can help most between the two.
Masked occurrences do not count. "none" are words that are not repeated, and punctuation. Masks and blocks are those of
validation in training, so that "all" is its valid_loss.
"""

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
from fairseq_poolingformer.command import UsageError, aligned, output_file, run_command
from fairseq_poolingformer.options import add_user_dir, positive, take_user_dir
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from run_scripts.evidence.repetitions import NONE, nearest_repetitions

_ROWS = 512  # tokens whose logits are in memory at a time


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, take_user_dir(sys.argv[1:] if arguments is None else arguments))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("data", type=Path, help="data folder of poolingformer preprocess wikipedia or plain_text")
    add("--model", required=True, help="checkpoint of task long_masked_lm")
    add("--subset", default="valid", help="split to evaluate (default: %(default)s)")
    text = "upper limits of the classes in tokens, such as w1 and w2 (default: 128 512)"
    add("--distances", type=positive, nargs="+", default=[128, 512], metavar="N", help=text)
    text = (
        "count tokens of words of at least N tokens; 2: of words that the vocabulary has no symbol for (default: all)"
    )
    add("--min-word-tokens", type=positive, default=1, metavar="N", help=text)
    add("--block-tokens", type=positive, metavar="N", help="tokens of a block (default: as in training)")
    add("--max-tokens", type=positive, default=16384, metavar="N", help="tokens of a batch (default: %(default)s)")
    add_user_dir(parser)
    add_device_options(parser)
    add("--output", type=output_file, required=True, metavar="FILE", help="JSON of the classes")
    return parser


def run(args: argparse.Namespace) -> None:
    """Evaluate the checkpoint; print the classes and write the JSON."""
    limits = args.distances
    if limits != sorted(set(limits)):
        raise UsageError(f"--distances must ascend, got {' '.join(map(str, limits))}")
    distances, nll = evaluate(args)
    classes = summarize(distances, nll, limits)
    bits = ("-" if row["bits_per_token"] is None else f"{row['bits_per_token']:.3f}" for row in classes)
    rows = [["distance in tokens", "masked tokens", "bits"]]
    rows += [[row["distance"], f"{row['tokens']:,}", value] for row, value in zip(classes, bits, strict=True)]
    print(aligned(rows), flush=True)
    result = {"checkpoint": args.model, "subset": args.subset, "classes": classes}
    write_lines(args.output, [json.dumps(result, indent=1)])


def evaluate(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """(M,) the distances of a split's masked tokens that count, and (M,) their negative log-likelihoods in nats."""
    (model,), task = load_models([args.model], args.device, args.precision, task="long_masked_lm", data=args.data)
    if args.block_tokens:
        task.cfg.block_tokens = args.block_tokens
        longest = model.max_positions()
        if args.block_tokens > longest:
            raise ValueError(f"--block-tokens {args.block_tokens}: {args.model} takes at most {longest} tokens")
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


if __name__ == "__main__":
    sys.exit(main())

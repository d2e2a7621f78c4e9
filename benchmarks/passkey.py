"""A pass key hidden in filler text: how often encoders find it, by the document's length, with several attentions.

    python benchmarks/passkey.py --output-folder FOLDER [--systems windows paper …] [--seeds 1 2 3] …

The network is a small ModernBERT: windows of 64 tokens on each side, each third layer with full attention, rotary
positions. A document begins with "What is the pass key? It is" and a masked symbol, and says in one place "The pass
key is" with that symbol, one of 100 that no other text has. The filler is the prose of preprocess.facts; what is asked
about comes from other modules than what is trained on. One start learns from random weights to find the key with full
attention in documents of at most --start-length tokens. Each system continues from it with its own attention in place
of the full one, for --updates updates, in documents of at most --length. Eight more words of each document are to be
restored meanwhile. What is done in the folder is not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq_poolingformer.preprocess.facts import read_sentences
from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM, PreTrainedModel

import fairseq_poolingformer.band
import fairseq_poolingformer.huggingface
from fairseq_poolingformer.huggingface import PoolingformerModernBertForMaskedLM
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer

KEYS, RESTORED, IGNORED = 100, 8, -100
TOKENIZER = Path(fairseq_poolingformer.__file__).parent / "demo_model" / "tokenizer" / "sentencepiece.model"
WINDOW = {"window_size": "256", "pooled_layers": "none"}
PAPER = {"window_size": "128", "pooled_window_size": "512", "pool_merge": "sum", "pooled_init": "random"}
MIX = PAPER | {"pool_mix": True, "pooled_init": "copy"}
ONE_SOFTMAX = PAPER | {"pool_merge": "softmax"}
MEANS = {"pool_type": "mean", "pool_kernel_size": 4}
TWO_SOFTMAX = {"window_size": "128", "pool_mix": True, "pool_share_weights": True} | MEANS
WIDE = {"pool_stride": 16}
EVERYTHING = {"pooled_window_size": "all"}
SYSTEMS: dict[str, dict[str, Any] | None] = {  # what the layers have that have full attention in the start
    "window": WINDOW,
    "dilated": WINDOW | {"dilation": "1,4", "dilated_layers": "0,3"},
    "paper": PAPER,
    "mix": MIX,
    "one-softmax": ONE_SOFTMAX,
    "one-softmax-16": ONE_SOFTMAX | WIDE | {"pooled_window_size": "2048"},  # up to here a token sees 512 keys
    "mix-all": MIX | EVERYTHING,
    "mix-all-means": MIX | EVERYTHING | MEANS,  # its own projections, without LDConv
    "mix-all-shared": MIX | EVERYTHING | {"pool_share_weights": True},  # LDConv, without projections of its own
    "one-softmax-all": ONE_SOFTMAX | EVERYTHING,
    "mean-softmax": ONE_SOFTMAX | MEANS,
    "mean-softmax-all": ONE_SOFTMAX | EVERYTHING | MEANS,
    "two-softmax-all": TWO_SOFTMAX | EVERYTHING,  # as mean-softmax-all, but each level has a softmax of its own
    "one-softmax-16-all": ONE_SOFTMAX | WIDE | EVERYTHING,
    "window-global": WINDOW,  # where the question's tokens are global
    "one-softmax-global": ONE_SOFTMAX,
    "full": None,
}


class Documents:
    """Documents that hide a key."""

    def __init__(self, held_out: bool) -> None:
        tokenizer = SentencePieceTokenizer(TOKENIZER)
        self.filler = tokenizer.encode(" ".join(read_sentences(held_out)))
        self.mask, self.first_key = len(tokenizer), len(tokenizer) + 1
        self.statement = tokenizer.encode("The pass key is")
        self.question = np.concatenate([[0], tokenizer.encode("What is the pass key? It is"), [self.mask]])

    def draw(self, rows: int, length: int, rng: np.random.Generator, restored: int = 0) -> tuple[Tensor, Tensor]:
        """Tokens and labels, (rows, length); the question's last token has the key's label."""
        head, said = len(self.question), len(self.statement) + 1
        tokens, labels = np.empty((rows, length), np.int64), np.full((rows, length), IGNORED)
        for row, wanted in zip(tokens, labels, strict=True):
            begin = rng.integers(len(self.filler))
            row[:] = self.filler.take(range(begin, begin + length), mode="wrap")
            hidden = head + rng.choice(length - head, restored, replace=False)
            wanted[hidden], row[hidden] = row[hidden], self.mask
            place, key = rng.integers(head, length - said + 1), self.first_key + rng.integers(KEYS)
            row[:head], row[place : place + said] = self.question, [*self.statement, key]
            wanted[place : place + said], wanted[head - 1] = IGNORED, key
        return torch.from_numpy(tokens), torch.from_numpy(labels)


def scores(model: PreTrainedModel, tokens: Tensor, at: Tensor) -> Tensor:
    """Logits at the N places that ``at``, (B, T), marks: (N, vocabulary)."""
    return model.decoder(model.head(model.base_model(input_ids=tokens).last_hidden_state[at]))


def optimizer_of(model: PreTrainedModel, pooled_rate: float) -> torch.optim.Optimizer:
    """AdamW; each group's ``times`` is its rate over the learning rate, level two's where it begins as a copy."""
    faster = pooled_rate if getattr(model.config, "pooled_init", None) == "copy" else 1
    named = list(model.named_parameters())
    rest, pooled = ([p for name, p in named if ("pooled_" in name) == wanted] for wanted in (False, True))
    groups = [{"params": rest, "times": 1}, *([{"params": pooled, "times": faster}] if pooled else [])]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)


def train(
    model: PreTrainedModel, documents: Documents, args: argparse.Namespace, longest: int, updates: int, seed: int
) -> float:
    """Train; returns the CPU seconds of an update."""
    rng, limits = np.random.default_rng(seed), (math.log2(args.shortest), math.log2(longest))
    optimizer, begin = optimizer_of(model.train(), args.pooled_rate), time.process_time()
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * group["times"] * min(1, update / 20) * (1 - update / updates)
        length = int(2 ** rng.uniform(*limits))
        tokens, labels = documents.draw(max(1, args.tokens // length), length, rng, RESTORED)
        at = labels.ne(IGNORED)
        losses = F.cross_entropy(scores(model, tokens, at), labels[at], reduction="none")
        is_key = labels[at].ge(documents.first_key)
        key, text = losses[is_key].mean(), losses[~is_key].mean()
        optimizer.zero_grad()
        (key + args.text_weight * text).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % math.ceil(updates / 5) == 0:
            print(f"  update {update}: key {key:.3f}, text {text:.3f} nats", flush=True)
    return (time.process_time() - begin) / updates


@torch.no_grad()
def found(model: PreTrainedModel, documents: Documents, args: argparse.Namespace, length: int) -> list[bool]:
    """Whether the key is found, for each document of a length; every model gets the same documents."""
    rng, right = np.random.default_rng(length), []
    model.eval()
    for _ in range(min(args.documents, max(args.least, args.asked_tokens // length))):
        tokens, labels = documents.draw(1, length, rng)
        best = scores(model, tokens, labels.ne(IGNORED))[:, documents.first_key :].argmax().item()
        right.append(best + documents.first_key == labels.max().item())
    return right


def start(documents: Documents, args: argparse.Namespace) -> ModernBertForMaskedLM:
    """The model that all systems continue from, trained where the folder has none."""
    folder = args.output_folder / "start"
    if not (folder / "config.json").exists():
        print("start", flush=True)
        torch.manual_seed(0)
        config = ModernBertConfig(
            vocab_size=documents.first_key + KEYS,
            hidden_size=args.width,
            intermediate_size=2 * args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.width // 32,
            initializer_range=0.02 * (768 / args.width) ** 0.5,  # with that of wide models it does not begin to learn
            **dict.fromkeys(("bos_token_id", "cls_token_id"), 0),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
            pad_token_id=1,
        )
        model = ModernBertForMaskedLM._from_config(config, attn_implementation="sdpa")
        train(model, documents, args, args.start_length, args.start_updates, seed=0)
        model.save_pretrained(folder)
    return ModernBertForMaskedLM.from_pretrained(folder, attn_implementation="band")


def run(name: str, seed: int, documents: Documents, held_out: Documents, args: argparse.Namespace) -> dict[str, Any]:
    """Train a system and ask it."""
    model, settings = start(documents, args), SYSTEMS[name]
    print(f"{name}, seed {seed}", flush=True)
    torch.manual_seed(seed)
    if settings is not None:
        asking = len(documents.question) if name.endswith("-global") else 0
        settings = {"max_position_embeddings": max(*args.lengths, args.length), "global_tokens": asking, **settings}
        model = PoolingformerModernBertForMaskedLM.from_short(model, **settings)
    seconds = train(model, documents, args, args.length, args.updates, seed)
    result: dict[str, Any] = {"seconds": seconds, "right": {}}
    for length in args.lengths:
        result["right"][str(length)] = right = found(model, held_out, args, length)
        print(f"  {length} tokens: {sum(right)} of {len(right)}", flush=True)
    return result


def shares(of_seeds: list[dict[str, Any]], length: int) -> list[float]:
    """Per cent of the keys in documents of a length that each seed has found, where it was asked."""
    return [100 * float(np.mean(right)) for result in of_seeds if (right := result["right"].get(str(length)))]


def plot(results: dict[str, list[dict[str, Any]]], args: argparse.Namespace) -> None:
    """Draw the keys found against the length, best systems first in the legend; bars span the seeds."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="tokens of a document", ylabel="keys retrieved, %", xscale="log", xticks=args.lengths)
    axes.set_title(f"Pass keys, after training on documents of up to {args.length:,} tokens", fontsize="medium")
    axes.set_xticklabels([f"{length:,}" for length in args.lengths])
    axes.minorticks_off()
    shades = colormaps["tab20"].colors
    colours = dict(zip(SYSTEMS, [*shades[::2], *shades[1::2]], strict=False))  # of a system, whichever are drawn
    means = {name: [np.mean(shares(seeds, length)) for length in args.lengths] for name, seeds in results.items()}
    for number, name in enumerate(sorted(results, key=lambda name: sum(means[name]), reverse=True)):
        cells = [shares(results[name], length) for length in args.lengths]
        bars = np.abs(np.array([[min(cell) for cell in cells], [max(cell) for cell in cells]]) - means[name])
        # beside one another, so that bars of a length stay apart
        places = np.array(args.lengths) * 1.015 ** (number - len(results) / 2)
        style = {"color": colours[name], "marker": "os^Dv"[number % 5], "markersize": 5, "capsize": 2}
        axes.errorbar(places, means[name], bars, label=name, **style)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(args.figure, dpi=130)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--output-folder", type=Path, required=True)
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--lengths", type=int, nargs="+", default=[1024, 4096, 16384, 65536], help="of the documents asked about")
    add("--documents", type=int, default=40, help="asked about of a length")
    add("--asked-tokens", type=int, default=160_000, help="of a length, so that there are fewer long documents,")
    add("--least", type=int, default=5, help="but at least so many")
    add("--shortest", type=int, default=48, help="tokens of the shortest documents trained on")
    add("--start-length", type=int, default=128, help="and of the longest, in the start")
    add("--length", type=int, default=1024, help="and of the longest, in the systems")
    add("--start-updates", type=int, default=800, help="of the start's training")
    add("--updates", type=int, default=200, help="and of each system's")
    add("--tokens", type=int, default=2048, help="of an update")
    add("--text-weight", type=float, default=0.3, help="of the loss of restored words beside the key's")
    add("--lr", type=float, default=3e-3)
    add("--pooled-rate", type=float, default=3, help="times that, in projections of level two that begin as copies")
    add("--width", type=int, default=64)
    add("--layers", type=int, default=6)
    add("--threads", type=int, default=1)
    add("--figure", type=Path, metavar="FILE", help="draw the table, too")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table: of each system the per cent of keys found by length, mean and range over seeds, and its cost."""
    args = parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    args.output_folder.mkdir(parents=True, exist_ok=True)
    documents, held_out = Documents(held_out=False), Documents(held_out=True)
    print(f"filler: {len(documents.filler):,} tokens to train on, {len(held_out.filler):,} to ask about")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in args.systems}
    for seed in args.seeds:
        for name in args.systems:
            path = args.output_folder / f"{name}_{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(name, seed, documents, held_out, args)))
            results[name].append(json.loads(path.read_text()))
    print(f"\n{'':<16}" + "".join(f"{length:>16,}" for length in args.lengths) + f"{'CPU ms':>10}")
    for name, of_seeds in results.items():
        print(f"{name:<16}", end="")
        for length in args.lengths:
            cells = shares(of_seeds, length)
            cell = f"{np.mean(cells):.0f} [{min(cells):.0f}, {max(cells):.0f}]" if cells else "-"
            print(f"{cell:>16}", end="")
        print(f"{1000 * np.mean([result['seconds'] for result in of_seeds]):>10.0f}")
    if args.figure:
        plot(results, args)


if __name__ == "__main__":
    main()

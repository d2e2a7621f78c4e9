"""What a model that from_short makes longer is worth before any training, after few updates and after more.

    PYTHONPATH=. python benchmarks/from_short.py --output-folder FOLDER [--lsg CLONE] [--systems full silent …] …

A small RoBERTa of transformers learns blocks of 512 tokens of Python's own library with full attention. Each system
makes a long model of it, and goes on with the same updates, blocks and optimizer. Measured are the names of other
packages: words of several tokens whose second half is masked, so that another occurrence tells the rest and little else
does; bits and per cent right per masked token, by the distance to the nearest visible occurrence, with 95 % intervals
(bootstrap over blocks, means of the seeds). What is done in the folder is not done again. CLONE is a folder that has
lsg_converter (ccdv-ai/convert_checkpoint_to_lsg), whose attention then stands in every layer in the place of ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import sysconfig
import time
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq_poolingformer.preprocess.facts import find_modules
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForMaskedLM

import fairseq_poolingformer.huggingface
from fairseq_poolingformer.huggingface import PoolingformerRobertaForMaskedLM
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.masking import Masking, RepeatedNames, SymbolTable, nearest_repetitions
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer
from run_scripts.evidence.sources import MIN_WORDS, is_valid, running_text

TOKENIZER = Path(fairseq_poolingformer.__file__).parent / "demo_model" / "tokenizer" / "sentencepiece.model"
NEAREST = 33  # tokens to another occurrence of the names that are masked
HEADS, HEAD_DIM, LAYERS = 4, 32, 3
WIDTH = HEADS * HEAD_DIM
TOKEN, FLAG, CONTEXT, PLACE = (
    slice(0, 63),
    63,
    slice(64, 95),
    slice(96, 128),
)  # of the vectors that the start begins with
FREQUENCIES = torch.exp(torch.linspace(math.log(2.5), math.log(2 * math.pi / 1024), 16))
REPEATS = 1000  # of the bootstrap


def systems_of(window: int, pooled_window: int) -> dict[str, dict[str, Any]]:
    """Settings of from_short by the system's name; ``lsg`` are those of the published attention in its place.

    ``window`` has as many keys as two levels, ``window-wide`` as the published attention; ``full-above`` has full
    attention but in the first layer, whose heads would take repeated positions for those of neighbours.
    """
    alone = {"pooled_layers": "none"}
    one, as_two, as_lsg = (
        alone | {"window_size": str(w1)} for w1 in (window, window + pooled_window // 4, 5 * window // 2)
    )
    two = {"window_size": str(window), "pooled_window_size": str(pooled_window)}
    copies, mix = two | {"pooled_init": "level-one"}, two | {"pooled_init": "level-one", "pool_mix": True}
    full = alone | {"window_size": "all"}
    further, apart = {"position_init": "interpolate"}, {"random_position_offsets": True}
    lsg = {
        f"lsg-{kind}-{factor}": full | {"lsg": {"block_size": window, "sparsity_type": kind, "sparsity_factor": factor}}
        for kind, factor in (("norm", 2), ("pooling", 4), ("bos_pooling", 4))
    }
    return {
        "full": full,
        "full-interpolate": full | further,
        "full-above": alone | {"window_size": [str(window), *["all"] * (LAYERS - 1)]},
        "level-one": one,
        "window": as_two,
        "window-wide": as_lsg,
        "window-interpolate": as_two | further,
        "window-offsets": as_two | apart,
        "window-no-global": as_two | {"global_tokens": 0},
        "random": two,
        "silent": two | {"pooled_init": "level-one-silent"},
        "silent-mix": two | {"pooled_init": "level-one-silent", "pool_mix": True},
        "copies": copies,
        "mix": mix,
        "mix-mean": mix | {"pool_type": "mean"},
        "mix-interpolate": mix | further,
        "mix-offsets": mix | apart,
        "mix-no-global": mix | {"global_tokens": 0},
        **lsg,
    }


def keys_of(settings: dict[str, Any], length: int) -> int:
    """How many keys a token in the middle sees in an upper layer."""
    if "lsg" in settings:
        return min(5 * settings["lsg"]["block_size"], length)  # three blocks, and a block of sparse keys on each side
    if "all" in settings["window_size"]:
        return length
    pools = 0 if "pooled_layers" in settings else 2 * int(settings["pooled_window_size"]) // 4
    return min(2 * int(settings["window_size"]), length) + pools


class Text:
    """Sources to train on, and of packages that nothing is trained on."""

    def __init__(self) -> None:
        tokenizer = SentencePieceTokenizer(TOKENIZER)
        self.texts, self.mask = [*tokenizer.symbol_texts(), b""], len(tokenizer)
        self.symbols = SymbolTable.of(self.texts)
        modules: dict[bool, list[np.ndarray]] = {False: [], True: []}
        for name, path in find_modules(Path(sysconfig.get_path("stdlib"))):
            try:
                with tokenize.open(path) as file:
                    text = running_text(file.read())
            except (OSError, SyntaxError, UnicodeDecodeError):
                continue
            if text.count(" ") >= MIN_WORDS:
                modules[is_valid(name)].append(np.append(tokenizer.encode(text), 2))
        self.train, self.held_out = (np.concatenate(modules[held_out]) for held_out in (False, True))

    def masked(self, tokens: np.ndarray, nearest: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(T,) what the model sees, and (T,) bool, True at the tokens to predict."""
        names = RepeatedNames(self.texts, nearest, len(tokens))
        masking = Masking(
            self.symbols,
            self.mask,
            leave_unmasked_prob=0,
            random_token_prob=0,
            whole_words=True,
            names=names,
            names_share=0.7,
        )
        return masking.apply(tokens, rng)

    def batch(self, rows: int, length: int, nearest: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, what the model sees, and where to predict, each (rows, length)."""
        drawn = []
        for _ in range(rows):
            first = rng.integers(len(self.train) - length)
            tokens = np.concatenate([[0], self.train[first : first + length - 2], [2]])
            drawn.append((tokens, *self.masked(tokens, nearest, rng)))
        return tuple(torch.from_numpy(np.stack(part)) for part in zip(*drawn, strict=True))

    def blocks(self, length: int, most_tokens: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Tokens, what the model sees, and where to predict, each (length,); the same for every model."""
        count = min(most_tokens, len(self.held_out)) // length
        for number, first in enumerate(np.linspace(0, len(self.held_out) - length, count, dtype=int)):
            tokens = np.concatenate([[0], self.held_out[first : first + length - 2], [2]])
            yield (tokens, *self.masked(tokens, NEAREST, np.random.default_rng([length, number])))


@torch.no_grad()
def lean_towards_copying(model: RobertaForMaskedLM, mask: int) -> None:
    """Let the model copy a little before it is trained: from random weights it would take millions of tokens to begin.

    The first layer's heads read the tokens 1 and 2 places before and after, and write them into a part of the vectors,
    the context. The other layers attend to tokens with a like context that are not masked, and hand them on. Training
    changes all of this.
    """
    words, places = (getattr(model.roberta.embeddings, f"{kind}_embeddings").weight for kind in ("word", "position"))
    words.zero_()[:, TOKEN].normal_()
    words[[1, mask]] = 0
    words[mask, FLAG] = 4
    angles = torch.arange(len(places))[:, None] * FREQUENCIES
    places.zero_()[:, PLACE] = 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)
    for table in (words, places):
        table *= 0.12  # the head's weights are those of the words
    first, *others = (layer.attention for layer in model.roberta.encoder.layer)
    for head, (shift, size) in enumerate(((-1, 1.0), (1, 0.7), (-2, 0.7), (2, 0.5))):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        cos, sin = (torch.diag(function(shift * FREQUENCIES)) for function in (torch.cos, torch.sin))
        first.self.query.weight[rows, PLACE] = 2 * torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        first.self.key.weight[rows, PLACE] = 2 * torch.eye(HEAD_DIM)
        first.self.value.weight[rows, TOKEN] = nn.init.orthogonal_(torch.empty(HEAD_DIM, 63))
        first.output.dense.weight[CONTEXT, rows] = size * torch.eye(31, HEAD_DIM)
        for layer in others:
            compared, last = slice(rows.start, rows.stop - 1), rows.stop - 1
            for projection in (layer.self.query, layer.self.key):
                projection.weight[compared, CONTEXT] = 3 * torch.eye(31)
            layer.self.query.bias[last], layer.self.key.weight[last, FLAG] = 6, -6
            read, written = slice(16 * head, min(16 * head + 16, 63)), rows.start
            count = read.stop - read.start
            layer.self.value.weight[written : written + count, read] = torch.eye(count)
            layer.output.dense.weight[read, written : written + count] = 2 * torch.eye(count)
    nn.init.eye_(model.lm_head.dense.weight)


def scores(model: nn.Module, tokens: Tensor, at: Tensor) -> Tensor:
    """Those of the N places that ``at``, (B, T), marks: (N, vocabulary)."""
    with torch.autocast("cpu", torch.bfloat16):
        return model.lm_head(model.base_model(input_ids=tokens).last_hidden_state[at]).float()


def update(
    model: nn.Module, optimizer: torch.optim.Optimizer, rate: float, batch: tuple[Tensor, Tensor, Tensor]
) -> float:
    """Make an update; returns the loss in bits per masked token."""
    tokens, seen, at = batch
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = F.cross_entropy(scores(model, seen, at), tokens[at])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item() / math.log(2)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)


def start(text: Text, args: argparse.Namespace) -> RobertaForMaskedLM:
    """The short model, trained where the folder has none."""
    folder = args.output_folder / "start"
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        config = RobertaConfig(
            vocab_size=text.mask + 1,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=args.start_length + 2,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model = RobertaForMaskedLM(config).train()
        lean_towards_copying(model, text.mask)
        rng, optimizer, rows = np.random.default_rng(0), optimizer_of(model), args.start_tokens // args.start_length
        for number in range(args.start_updates):
            rate = args.start_lr * min(1, (number + 1) / 20) * (1 - number / args.start_updates)
            loss = update(model, optimizer, rate, text.batch(rows, args.start_length, 1, rng))
            if number % 50 == 49:
                print(f"start, update {number + 1}: {loss:.2f} bits", flush=True)
        model.save_pretrained(folder)
    return RobertaForMaskedLM.from_pretrained(folder)


class Published(nn.Module):
    """Published attention with the projections of one of our layers, called as that is."""

    def __init__(self, own: nn.Module, attend: nn.Module) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attend = own.query, own.key, own.value, attend

    def forward(self, hidden_states: Tensor, *unused: Any, **unused_too: Any) -> tuple[Tensor, None]:
        """(B, T, C) to (B, T, C), without padding."""
        projected = (projection(hidden_states) for projection in (self.query, self.key, self.value))
        heads = (x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for x in projected)
        return self.attend(*heads).transpose(1, 2).flatten(2), None


def published_attention(clone: Path) -> Any:
    """The class out of the clone's one file for it, without the rest, which needs a transformers of its own."""
    path = clone / "lsg_converter" / "attention_layers" / "lsg_self_attention.py"
    spec = importlib.util.spec_from_file_location("lsg_self_attention", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LSGSelfAttention


def converted(short: RobertaForMaskedLM, settings: dict[str, Any], length: int, clone: Path | None) -> nn.Module:
    """The long model of a system; with random offsets it has twice as many positions as its blocks have tokens."""
    settings = dict(settings)
    published = settings.pop("lsg", None)
    positions = length * (2 if "random_position_offsets" in settings else 1) + 2
    model = PoolingformerRobertaForMaskedLM.from_short(short, max_position_embeddings=positions, **settings)
    for layer in model.base_model.encoder.layer if published else ():
        attend = published_attention(clone)(attention_dropout_prob=0.0, **published)
        layer.attention.self = Published(layer.attention.self, attend)
    return model


@torch.no_grad()
def measure(model: nn.Module, text: Text, args: argparse.Namespace, length: int) -> list[list[list[float]]]:
    """Of each block and each class of distances the masked tokens of names, their bits, and how many are right."""
    found, edges = [], [0, *args.distances, math.inf]
    model.eval()
    for tokens, seen, at in text.blocks(length, args.held_out_tokens):
        guessed = scores(model, torch.from_numpy(seen)[None], torch.from_numpy(at)[None])
        wanted = torch.from_numpy(tokens[at])
        bits = F.cross_entropy(guessed, wanted, reduction="none").div(math.log(2)).numpy()
        right = guessed.argmax(1).eq(wanted).numpy()
        words = text.symbols.words(tokens)
        distance = nearest_repetitions(tokens, words, seen == tokens, text.texts)[at]
        name = np.bincount(words)[words[at]] > 1
        classes = [name, name & (distance < 0)]
        classes += [name & (distance > low) & (distance <= high) for low, high in itertools.pairwise(edges)]
        found.append([[int(of.sum()), float(bits[of].sum()), int(right[of].sum())] for of in classes])
    return found


def run(
    name: str, settings: dict[str, Any], length: int, seed: int, text: Text, args: argparse.Namespace
) -> dict[str, Any]:
    """Make the long model, train it, and measure it on the way."""
    print(f"{name}, {length} tokens, seed {seed}", flush=True)
    torch.manual_seed(seed)
    model = converted(start(text, args), settings, length, args.lsg)
    rng, optimizer, seconds = np.random.default_rng(seed), optimizer_of(model), 0.0
    result: dict[str, Any] = {}
    rows = max(1, args.tokens // length)
    for number in range(max(args.updates) + 1):
        if number in args.updates:
            result[str(number)] = {"blocks": measure(model, text, args, length), "cpu_seconds": seconds}
            print(f"  {number} updates: {cell([result[str(number)]['blocks']], 0, 'bits')} bits", flush=True)
        if number < max(args.updates):
            rate = args.lr * min(1, (number + 1) / 10) * (1 - number / max(args.updates))
            begin = time.process_time()
            update(model.train(), optimizer, rate, text.batch(rows, length, NEAREST, rng))
            seconds += time.process_time() - begin
    return result


def resampled(of_seeds: Sequence[Any], of_class: int, measured: str) -> np.ndarray:
    """(1 + REPEATS,) means per masked token: of the blocks, then of as many drawn from them with replacement."""
    sums = np.mean([np.array(blocks)[:, of_class] for blocks in of_seeds], 0)  # (blocks, 3)
    rng = np.random.default_rng(0)  # the same blocks for all systems, so that their differences are paired
    drawn = rng.integers(len(sums), size=(REPEATS, len(sums)))
    chosen = np.concatenate([sums.sum(0)[None], sums[drawn].sum(1)])
    value = chosen[:, 1] if measured == "bits" else 100 * chosen[:, 2]
    return value / np.maximum(chosen[:, 0], 1e-9)


def cell(of_seeds: Sequence[Any], of_class: int, measured: str, baseline: Sequence[Any] = ()) -> str:
    """A mean and half its 95 % interval, or those of the difference from a baseline; - without any token."""
    if not np.array(of_seeds)[:, :, of_class, 0].sum():
        return "-"
    values = resampled(of_seeds, of_class, measured)
    if baseline:
        values = values - resampled(baseline, of_class, measured)
    low, high = np.quantile(values[1:], [0.025, 0.975])
    digits = 2 if measured == "bits" else 0
    return f"{values[0]:{'+' if baseline else ''}.{digits}f} ±{(high - low) / 2:.{digits}f}"


def tables(found: dict[tuple[str, int], list[dict[str, Any]]], args: argparse.Namespace) -> Iterator[str]:
    """For each length and number of updates: bits, per cent right, and bits beside the baseline."""
    limits = ["1", *(str(limit + 1) for limit in args.distances)]
    named = [*(f"{low}-{high}" for low, high in zip(limits, args.distances, strict=False)), f"> {args.distances[-1]}"]
    systems = systems_of(args.window, args.pooled_window)
    for length in args.lengths:
        for updates in map(str, args.updates):
            of = {
                name: [result[updates] for result in results if updates in result]
                for (name, at), results in found.items()
                if at == length
            }
            blocks = {name: [one["blocks"] for one in results] for name, results in of.items() if results}
            rows = {"bits": [], "right": [], "difference": []}
            for name, its in blocks.items():
                seconds = np.mean([one["cpu_seconds"] for one in of[name]])
                end = [f"{seconds:.0f}", str(len(its))]
                head = [name, str(keys_of(systems[name], length))]
                for measured in ("bits", "right"):
                    rows[measured].append([*head, *(cell(its, k, measured) for k in range(len(named) + 2)), *end])
                if args.baseline in blocks and name != args.baseline:
                    base = blocks[args.baseline]
                    rows["difference"].append(
                        [*head, *(cell(its, k, "bits", base) for k in range(len(named) + 2)), *end]
                    )
            titles = {"bits": "bits", "right": "% right", "difference": f"bits - {args.baseline}'s"}
            for kind, lines in rows.items():
                if lines:
                    columns = ["", "keys", "all", "none", *named, "CPU s", "seeds"]
                    yield f"\n{length} tokens, {updates} updates: {titles[kind]}\n{aligned([columns, *lines])}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--output-folder", type=Path, required=True)
    add(
        "--lsg",
        type=Path,
        metavar="CLONE",
        help="a folder that has lsg_converter; without it there are no such systems",
    )
    add("--systems", nargs="+", choices=systems_of(128, 512), help="default: all")
    add("--lengths", type=int, nargs="+", default=[2048, 4096, 8192], help="tokens that the long models read")
    add("--updates", type=int, nargs="+", default=[0, 20, 200], help="after how many to measure")
    add("--seeds", type=int, nargs="+", default=[1, 2])
    add("--baseline", default="window", help="of the differences")
    add("--tokens", type=int, default=2048, help="of an update, at least a block")
    add("--lr", type=float, default=3e-4)
    add("--held-out-tokens", type=int, default=98304, help="to measure on")
    add("--distances", type=int, nargs="+", default=[128, 256, 512, 1024], help="upper limits of the classes")
    add("--window", type=int, default=128, help="w1 of two levels, and the published attention's block")
    add("--pooled-window", type=int, default=512, help="w2")
    add("--start-length", type=int, default=512, help="tokens that the short model reads")
    add("--start-updates", type=int, default=400)
    add("--start-tokens", type=int, default=4096, help="of an update of the short model")
    add("--start-lr", type=float, default=3e-3)
    add("--threads", type=int, default=1)
    add("--quick", action="store_true", help="try it out: tiny sizes, a few updates")
    return parser


QUICK = {
    "lengths": [128],
    "updates": [0, 2],
    "seeds": [1],
    "tokens": 128,
    "held_out_tokens": 512,
    "distances": [48, 64],
    "window": 16,
    "pooled_window": 64,
    "start_length": 64,
    "start_updates": 2,
    "start_tokens": 128,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the folder lacks, and print and write the tables of all that it has."""
    args = parser().parse_args(arguments)
    if args.quick:
        vars(args).update(QUICK)
    torch.set_num_threads(args.threads)
    args.output_folder.mkdir(parents=True, exist_ok=True)
    systems = systems_of(args.window, args.pooled_window)
    text = Text()
    print(f"{len(text.train):,} tokens to train on, {len(text.held_out):,} to measure on", flush=True)
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for seed in args.seeds:
        for length in args.lengths:
            for name in args.systems or systems:
                if "lsg" in systems[name] and not args.lsg:
                    continue
                path = args.output_folder / f"{name}_{length}_{seed}.json"
                done = json.loads(path.read_text()) if path.exists() else {}
                if not {*map(str, args.updates)} <= done.keys():
                    done |= run(name, systems[name], length, seed, text, args)
                    write_lines(path, [json.dumps(done)])
                found.setdefault((name, length), []).append(done)
    text_of_tables = "\n".join(tables(found, args))
    print(text_of_tables)
    write_lines(args.output_folder / "tables.txt", [text_of_tables])


if __name__ == "__main__":
    main()

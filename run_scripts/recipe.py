"""Train two-level attention on your own texts, in plain PyTorch: a file to copy and edit.

    python run_scripts/recipe.py TEXT.txt … --output-folder runs/recipe [--steps 4000] [--channels 256] …

A masked language model over bytes: whole words are hidden, and found again from what the attention shows. The same
model with one window of equal cost is trained beside it, on the same batches. Called again, it goes on from the last
checkpoint, with the numbers that it would have had. Needs PyTorch and this package, nothing else.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import log
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.attention import GlobalTokens, Pooling, TwoLevelAttention, Window

MASK, FIRST, VOCABULARY = 256, 257, 258  # beside the bytes; FIRST begins every block, and is its global token
SPACES = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, torch.tensor([*b" \t\n\r\0"]), True)


@dataclass(frozen=True)
class Settings:
    """Every number of a run; each is an option of the command line, such as --pooled-window 512."""

    channels: int = 128
    heads: int = 4
    layers: int = 4
    pooled_layers: int = 2  # the last ones, which have two levels; the others see one window
    window: int = 32  # w1, tokens on each side
    pooled_window: int = 256  # w2
    pool: int = 4  # tokens that are pooled to one key
    block: int = 2048  # bytes of an example
    batch: int = 8
    steps: int = 2000
    warm_up: int = 100  # steps
    lr: float = 1e-3
    dropout: float = 0.0
    masked: float = 0.15  # of the words
    evaluate_every: int = 200  # steps, after which a checkpoint is written, too
    evaluation_batches: int = 8
    seed: int = 1


# The model.


def window_of_equal_cost(window: int, pooled_window: int, pool: int) -> int:
    """The window (tokens on each side) of a layer that takes as many multiply-adds as one of two levels.

    A key that a token sees costs 2d of them, in its score and in the output. Two levels see 2·w1 + 1 tokens and 2·w2
    in pools; in one softmax level two has no projections of its own.
    """
    return window + pooled_window // pool


class Layer(nn.Module):
    """An encoder layer: attention, then feed-forward, each on normalized input and added to it."""

    def __init__(self, settings: Settings, window: int, pooled_window: int | None) -> None:
        super().__init__()
        d, levels = settings.channels, {}
        if pooled_window is not None:
            levels = {"pooled_window": Window(pooled_window), "pooling": Pooling(settings.pool, settings.pool)}
            levels["pool_merge"] = "softmax"  # the papers' level two has projections of its own, and "sum"
        self.attention = TwoLevelAttention(d, settings.heads, window=Window(window), dropout=settings.dropout, **levels)
        self.feed = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.first_norm, self.second_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, global_tokens: GlobalTokens) -> Tensor:
        x = x + self.dropout(self.attention(self.first_norm(x), global_mask=global_tokens))
        return x + self.dropout(self.feed(self.second_norm(x)))


class Model(nn.Module):
    """An encoder of bytes. With ``two_levels`` the last layers have both, else one window of equal cost."""

    def __init__(self, settings: Settings, two_levels: bool) -> None:
        super().__init__()
        wide = window_of_equal_cost(settings.window, settings.pooled_window, settings.pool)
        upper = (settings.window, settings.pooled_window) if two_levels else (wide, None)
        lower = settings.layers - settings.pooled_layers
        kinds = [(settings.window, None)] * lower + [upper] * settings.pooled_layers
        self.tokens = nn.Embedding(VOCABULARY, settings.channels)
        self.positions = nn.Embedding(settings.block + 1, settings.channels)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(settings, *kind) for kind in kinds)
        self.norm = nn.LayerNorm(settings.channels)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        """Logits (wanted tokens, 258) of tokens (B, T), at the True ones of ``wanted`` (B, T)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
        global_tokens = GlobalTokens(tokens == FIRST)  # made once, for all layers
        for layer in self.layers:
            x = layer(x, global_tokens)
        return self.norm(x)[wanted] @ self.tokens.weight.T


# The data.


def read(paths: Sequence[Path], block: int) -> tuple[Tensor, Tensor]:
    """The bytes of all texts: those to train on, and the last tenth of each file to evaluate on."""
    parts: tuple[list[bytes], list[bytes]] = [], []
    for path in paths:
        text = path.read_bytes()
        cut = len(text) * 9 // 10
        for part, piece in zip(parts, (text[:cut], text[cut:]), strict=True):
            part.append(piece)
    train, valid = (torch.frombuffer(bytearray(b"\0".join(part)), dtype=torch.uint8) for part in parts)
    if min(len(train), len(valid)) < block:
        raise SystemExit(
            f"{len(train)} and {len(valid)} bytes to train and evaluate: give more text, or a --block below"
        )
    return train, valid


def batch(data: Tensor, settings: Settings, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batch of a number, which alone decides on it: tokens (B, T) with hidden words, what they were, which."""
    draw = torch.Generator().manual_seed(settings.seed * 2**32 + number)
    starts = torch.randint(len(data) - settings.block + 1, (settings.batch, 1), generator=draw)
    text = data[starts + torch.arange(settings.block)].long()
    text = torch.cat([torch.full((settings.batch, 1), FIRST), text], 1)
    spaces = SPACES[text]
    word = spaces.cumsum(1)  # the number of its word, for each byte
    hidden = (torch.rand(text.shape, generator=draw) < settings.masked).gather(1, word) & ~spaces & (text != FIRST)
    return text.masked_fill(hidden, MASK), text, hidden


# Training and evaluation.


def loss_of(model: Model, data: Tensor, settings: Settings, number: int, device: str) -> Tensor:
    """Nats a hidden byte, in the batch of a number."""
    tokens, text, hidden = (x.to(device) for x in batch(data, settings, number))
    with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=device != "cpu"):
        logits = model(tokens, hidden)
    return F.cross_entropy(logits.float(), text[hidden])


@torch.no_grad()
def evaluate(model: Model, data: Tensor, settings: Settings, device: str) -> float:
    """Bits a hidden byte; always of the same batches, none of which training has."""
    model.eval()
    numbers = range(2**31, 2**31 + settings.evaluation_batches)
    losses = [loss_of(model, data, settings, number, device).item() for number in numbers]
    model.train()
    return sum(losses) / len(losses) / log(2)


def step(model: Model, optimizer: torch.optim.Optimizer, data: Tensor, settings: Settings, n: int, device: str) -> None:
    """One update, the n-th from 0 on."""
    rate = min((n + 1) / settings.warm_up, 1 - n / settings.steps)  # up and then down, both in a line
    for group in optimizer.param_groups:
        group["lr"] = settings.lr * rate
    torch.manual_seed(settings.seed * 2**32 + n)  # of dropout, so that a resumed run draws the same
    loss_of(model, data, settings, n, device).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def save(path: Path, state: dict) -> None:
    """Write a checkpoint whole or not at all."""
    torch.save(state, path.with_suffix(".unfinished"))
    os.replace(path.with_suffix(".unfinished"), path)


def train(paths: Sequence[Path], folder: Path, settings: Settings, device: str) -> dict[str, list[float]]:
    """Train both systems, or go on; the bits of each evaluation by system."""
    data, valid = read(paths, settings.block)
    wide = window_of_equal_cost(settings.window, settings.pooled_window, settings.pool)
    names = {"two levels": True, f"window {wide}": False}
    models, optimizers = {}, {}
    for name, two_levels in names.items():
        torch.manual_seed(settings.seed)
        models[name] = Model(settings, two_levels).to(device)
        optimizers[name] = torch.optim.AdamW(models[name].parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    done, bits, seconds = 0, {name: [] for name in names}, dict.fromkeys(names, 0.0)
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        if state["settings"] != asdict(settings):
            raise SystemExit(f"{checkpoint} was made with other settings: repeat them, or give another --output-folder")
        done, bits, seconds = state["done"], state["bits"], state["seconds"]
        for name in names:
            models[name].load_state_dict(state["models"][name])
            optimizers[name].load_state_dict(state["optimizers"][name])
    print(f"{len(data)} bytes; bits a hidden byte, and seconds a step", *names, sep="\t")
    while done < settings.steps:
        for name in names:
            start = time.perf_counter()
            step(models[name], optimizers[name], data, settings, done, device)
            seconds[name] += time.perf_counter() - start
        done += 1
        if done % settings.evaluate_every == 0 or done == settings.steps:
            for name, model in models.items():
                bits[name].append(evaluate(model, valid, settings, device))
            states = {"models": {name: x.state_dict() for name, x in models.items()}}
            states |= {"optimizers": {name: x.state_dict() for name, x in optimizers.items()}}
            save(checkpoint, {"settings": asdict(settings), "done": done, "bits": bits, "seconds": seconds, **states})
            cells = (f"{bits[name][-1]:.3f}, {seconds[name] / done:.3f} s" for name in names)
            print(f"step {done}", *cells, sep="\t", flush=True)
    return bits


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs="+", type=Path, help="files, read as bytes")
    parser.add_argument("--output-folder", type=Path, required=True, help="of checkpoint.pt, from which a run goes on")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for one in fields(Settings):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    given = vars(parser.parse_args(arguments))
    given["output_folder"].mkdir(parents=True, exist_ok=True)
    settings = Settings(**{one.name: given[one.name] for one in fields(Settings)})
    return train(given["texts"], given["output_folder"], settings, given["device"])


if __name__ == "__main__":
    main()

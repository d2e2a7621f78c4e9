"""Published models beside ours: the same weights, batches, optimizer and schedule, update by update.

    python benchmarks/published.py [--adaptive-span CLONE] [--transformer-xl CLONE] [--longformer CLONE] [--updates 40]

A CLONE is a folder with facebookresearch/adaptive-span, kimiyoung/transformer-xl or allenai/longformer. Its code is
imported from there. Character models train with their own optimizer and schedule, and with a memory that goes from
batch to batch; ours has the published weights, copied by the converters, and is trained by fairseq's trainer with the
flags of run_scripts/char_lm. Of Longformer it is an attention layer. Everything is in float64, without dropout. The
table says how far the two are apart after the last update, and how far the parameters have moved, without which it
would say nothing.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from published_models import (
    BLOCK,
    ROOT,
    ROWS,
    WIDTH,
    Ours,
    PublishedAdaptiveSpan,
    PublishedTransformerXL,
    Side,
    State,
    longformer_sides,
)
from torch import Tensor

# Vectors of distances, some of which no head sees. The published code adds 1e-8 to the sum that it divides weights by,
# which gives those a gradient of that size, and Adagrad makes whole steps of it.
UNSEEN = "decoder.positions.weight"


class Row(NamedTuple):
    """A line of the table.

    Args:
        name: of the case.
        updates: how many there were.
        first_loss, last_loss: the published model's, in nats.
        loss: the greatest difference of a loss of any update.
        parameters: the greatest difference of a parameter after the last, but for ``UNSEEN``.
        unseen: the same of those.
        moved: the greatest difference between a parameter before and after the training.
    """

    name: str
    updates: int
    first_loss: float
    last_loss: float
    loss: float
    parameters: float
    unseen: float
    moved: float


def compare(name: str, published: Side, ours: Side, batches: Sequence[tuple[Tensor, Tensor]]) -> Row:
    """Train both on the same batches."""
    before = {key: value.clone() for key, value in published.parameters().items()}
    losses = [(published.update(*batch), ours.update(*batch)) for batch in batches]
    theirs, own = published.parameters(), ours.parameters()
    return Row(
        name,
        len(batches),
        losses[0][0],
        losses[-1][0],
        max(abs(a - b) for a, b in losses),
        _distance(theirs, own, without=UNSEEN),
        _distance(theirs, own) if UNSEEN in theirs else 0.0,
        _distance(theirs, before),
    )


def _distance(first: State, second: State, without: str = "") -> float:
    """The greatest difference of a parameter; both have the same ones."""
    if first.keys() != second.keys():
        raise ValueError(f"parameters differ: {sorted(first.keys() ^ second.keys())}")
    return max(float((value - second[name]).abs().max()) for name, value in first.items() if name != without)


def longformer_rows(clone: Path, updates: int) -> Iterator[Row]:
    """Sliding chunks with global tokens and padding, a layer; random vectors, other ones in every update."""
    tokens, window = 96, 8
    padding = torch.arange(tokens) >= torch.tensor([tokens, 71])[:, None]
    global_mask = torch.arange(tokens) < torch.tensor([1, 3])[:, None]
    torch.manual_seed(0)
    sides = longformer_sides(clone, window, padding, global_mask)
    pairs = torch.randn(updates, 2, 2, tokens, WIDTH, dtype=torch.float64).unbind()
    yield compare("Longformer: attention layer", *sides, [tuple(pair) for pair in pairs])


def text() -> Tensor:
    """(ROWS, n) bytes of this project's documents."""
    whole = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    values = torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()
    return values[: len(values) // ROWS * ROWS].view(ROWS, -1)


def batches(rows: Tensor, number: int) -> list[tuple[Tensor, Tensor]]:
    """Consecutive blocks of every row, and the bytes after theirs.

    Raises:
        ValueError: the text is too short.
    """
    most = (rows.size(1) - 1) // BLOCK
    if number > most:
        raise ValueError(f"--updates must be at most {most:,}, where the text ends; got {number:,}")
    starts = range(0, number * BLOCK, BLOCK)
    return [(rows[:, i : i + BLOCK], rows[:, i + 1 : i + BLOCK + 1]) for i in starts]


def adaptive_span_rows(clone: Path, updates: int) -> Iterator[Row]:
    """Spans that begin at 0, as published; and spans that begin in the middle and move far, both ways."""
    rows = text()
    order = rows.unique().tolist()
    for name, start, span_loss, warmup in (("spans begin at 0", 0.0, 2e-6, 8000), ("spans move far", 0.12, 0.0, 400)):
        torch.manual_seed(0)
        options = {"max_span": 256, "start": start, "ramp": 32, "span_loss": span_loss}
        options |= {"lr": 0.07, "warmup": warmup, "clip": 0.03}
        published = PublishedAdaptiveSpan(clone, order, **options)
        flags = ("--optimizer", "clipped_adagrad", "--parameter-clip-norm", "0.03", "--clip-norm", "0", "--lr", "0.07")
        flags += ("--lr-scheduler", "staged", "--warmup-updates", str(warmup), "--span-loss", str(span_loss))
        ours = Ours(*published.converted(), *flags)
        yield compare(f"adaptive span: {name}", published, ours, batches(rows, updates))


def transformer_xl_rows(clone: Path, updates: int) -> Iterator[Row]:
    """A memory as long as a block, and one that is longer."""
    rows = text()
    order = rows.unique().tolist()
    for memory in (BLOCK, 2 * BLOCK):
        torch.manual_seed(0)
        published = PublishedTransformerXL(clone, order, memory=memory, lr=2.5e-4, clip=0.25, updates=updates)
        flags = ("--optimizer", "fused_adamw", "--weight-decay", "0", "--lr", "2.5e-4", "--clip-norm", "0.25")
        flags += ("--lr-scheduler", "cosine", "--max-update", str(updates))
        ours = Ours(*published.converted(), *flags)
        yield compare(f"Transformer-XL: memory of {memory}", published, ours, batches(rows, updates))


CASES: dict[str, Callable[[Path, int], Iterator[Row]]] = {
    "adaptive_span": adaptive_span_rows,
    "transformer_xl": transformer_xl_rows,
    "longformer": longformer_rows,
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in CASES:
        result.add_argument(f"--{name.replace('_', '-')}", type=Path, metavar="CLONE", help="folder of its code")
    result.add_argument("--updates", type=int, default=40, metavar="N", help="(default: %(default)s)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the table."""
    command = parser()
    args = command.parse_args(arguments)
    clones = {name: getattr(args, name) for name in CASES if getattr(args, name)}
    if not clones:
        command.error("give at least one clone: " + ", ".join(f"--{name.replace('_', '-')}" for name in CASES))
    for name, clone in clones.items():
        if not clone.is_dir():
            command.error(f"--{name.replace('_', '-')} {clone} is not a folder")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of calls that are older than this torch
    heads = ("", "updates", "loss, nats", "losses differ by", "parameters", "distances", "parameters moved by")
    print("|", " | ".join(heads), "|\n" + "|---" * len(heads) + "|")
    for name, clone in clones.items():
        for row in CASES[name](clone, args.updates):
            loss = f"{row.first_loss:.3f} → {row.last_loss:.3f}"
            numbers = f"{row.loss:.0e} | {row.parameters:.0e} | {row.unseen:.0e} | {row.moved:.2g}"
            print(f"| {row.name} | {row.updates} | {loss} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()

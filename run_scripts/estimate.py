"""Counts the operations of an experiment and estimates its memory, from its line in experiments.txt.

python run_scripts/estimate.py summarization/arxiv_16k [question_answering/nq_large …] [--no-recompute]
python run_scripts/estimate.py summarization/arxiv_4k --windows 256 512   # one window in place of two levels
python run_scripts/estimate.py --layer 768 1024    # keys and multiply-adds of an attention layer for each token
"""

from __future__ import annotations

import argparse
import bisect
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_poolingformer.settings import layer_numbers

SCRIPTS = Path(__file__).resolve().parent
GIB, LARGE = 2**30, 80  # bytes; the GiB of a large GPU


@dataclass(frozen=True)
class Size:
    """The sizes of an architecture; ``decoder_layers`` is 0 for RoBERTa."""

    width: int
    inner: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int


@dataclass(frozen=True)
class Attention:
    """Both levels: windows of one side in tokens, how many layers have the second, and how the two are merged."""

    window: int
    pooled_window: int = 0
    pooled_layers: int = 0
    kernel: int = 1
    stride: int = 1
    merge: str = "sum"

    @property
    def keys(self) -> int:
        """Keys that a token sees in a layer with all levels."""
        return 2 * self.window + 1 + self.pooled_layers * (2 * self.pooled_window // self.stride)


@dataclass(frozen=True)
class Training:
    """One experiment: ``documents`` of ``source`` tokens an epoch, each with ``target`` tokens to predict."""

    size: Size
    attention: Attention
    source: int
    target: int
    documents: int
    batch: int
    device_batch: int
    updates: int


SIZES = {
    "bart_large": Size(1024, 4096, 12, 12, 50265),
    "bart_base": Size(768, 3072, 6, 6, 50265),
    "roberta_large": Size(1024, 4096, 24, 0, 50265),
    "roberta_base": Size(768, 3072, 12, 0, 50265),
}
LAYERS = {  # attention of one layer; heads dilated 1, 2, 3 cost what a window of as many keys does
    "window of 256, or heads dilated 1, 2, 3": Attention(256),
    "window of 512": Attention(512),
    "the papers' two levels, w1 128, w2 512, pools of 5, 4 apart": Attention(128, 512, 1, 5, 4),
    "one softmax, w1 128, pools of 4 within 512": Attention(128, 512, 1, 4, 4, "softmax"),
    "one softmax, w1 128, pools of 16 within 2,048": Attention(128, 2048, 1, 16, 16, "softmax"),
}
MASKED = 0.15  # of the tokens of a block
# Vectors of the model's width that one encoder layer keeps of each source token for the backward pass, everything
# included; from the memory of training steps of the base size in docs/performance.md, gradients taken off.
KEPT = 13.5


def level_two(width: int, attention: Attention) -> float:
    """Count the multiply-adds of level two in one layer, for one token."""
    # queries of every token; keys and values of every pool; both are means, weighted by a product of the width
    projections = 0.0 if attention.merge == "softmax" else width * width + 2 * width * width / attention.stride
    return projections + (4 * attention.kernel + 4 * attention.pooled_window) * width / attention.stride


def of_layer(width: int, attention: Attention) -> float:
    """Count the multiply-adds of one layer's attention, its projections included, for one token."""
    two = attention.pooled_layers * level_two(width, attention)
    return 4 * width * width + (2 * attention.window + 1) * 2 * width + two


def multiply_adds(size: Size, attention: Attention, source: int, target: int) -> dict[str, float]:
    """Count the multiply-adds of a forward pass over one document, for pairs of tokens that see each other."""
    d = size.width
    layer = of_layer(d, replace(attention, pooled_layers=0)) + 2 * d * size.inner
    encoder = source * (size.encoder_layers * layer + attention.pooled_layers * level_two(d, attention))
    written = 4 * d * d + 2 * d * d + 2 * d * size.inner + target / 2 * 2 * d + source * 2 * d
    decoder = size.decoder_layers * (target * written + source * 2 * d * d)
    head = 0 if size.decoder_layers else d * d
    return {"encoder": encoder, "decoder": decoder, "output": target * (head + d * size.vocabulary)}


def operations(training: Training, recompute: bool) -> float:
    """Count the floating-point operations of an update: two for each multiply-add, thrice the forward pass, and a
    fourth one of all layers where activations are recomputed."""
    counts = multiply_adds(training.size, training.attention, training.source, training.target)
    layers = counts["encoder"] + counts["decoder"]
    return 2 * training.batch * (3 * sum(counts.values()) + recompute * layers)


def parameters(size: Size, attention: Attention, positions: int) -> int:
    """Count the parameters of a model, LDConv's included; exact for the sizes of SIZES."""
    d, f = size.width, size.inner
    norm, linear = 2 * d, d * d + d
    layer = 4 * linear + 2 * norm + (d * f + f) + (f * d + d)
    # keys and values have LDConv weights of their own
    level_two = 0 if attention.merge == "softmax" else 3 * linear + 2 * attention.kernel * d
    embeddings = size.vocabulary * d + (positions + 2) * d + norm
    total = size.encoder_layers * layer + attention.pooled_layers * level_two + embeddings
    if size.decoder_layers:
        total += size.decoder_layers * (layer + 4 * linear + norm) + (1024 + 2) * d + norm
    else:
        total += linear + norm + size.vocabulary
    return total


def memory(training: Training, recompute: bool, half: bool = True) -> dict[str, float]:
    """Estimate the memory of one GPU, in bytes."""
    size, count = training.size, parameters(training.size, training.attention, training.source)
    layers = size.encoder_layers
    kept = layers + KEPT if recompute else layers * KEPT
    return {
        "weights": count * (4 if half else 8),
        "optimizer": count * (16 if half else 8),
        "activations": training.device_batch * training.source * size.width * kept * (2 if half else 4),
    }


def longest(training: Training, gib: float, recompute: bool) -> int:
    """Estimate the longest document whose training fits into one GPU."""

    def is_too_long(blocks: int) -> bool:
        longer = replace(training, source=1024 * blocks, device_batch=1)
        return sum(memory(longer, recompute).values()) > gib * GIB

    return 1024 * bisect.bisect(range(1, 2**20), False, key=is_too_long)


def load(experiment: str) -> Training:
    """Read an experiment of the run scripts."""
    folder, _, name = experiment.partition("/")
    path = SCRIPTS / folder / "experiments.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    found = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if row[0] == name]
    if not found:
        raise ValueError(f"{experiment}: give FOLDER/NAME of a line in run_scripts/FOLDER/experiments.txt")
    row = found[0]
    known = [size for part, size in SIZES.items() if row["arch"].endswith(part.replace("xlmr", "roberta"))]
    if not known or row["arch"].startswith("longformer"):
        raise ValueError(f"{experiment}: the sizes of {row['arch']} are not known here")
    source = int(row.get("input") or row["length"])
    first, second = (source // 2 if row[level] == "all" else row[level] for level in ("w1", "w2"))
    attention = Attention(int(first))
    if layers := len(layer_numbers(row["pooled_layers"])):
        attention = Attention(int(first), int(second), layers, int(row["kernel"]), int(row["stride"]))
        attention = replace(attention, merge=row.get("merge", "sum"))
    documents = int(row.get("examples") or row.get("segments") or row["epoch_blocks"])
    target = int(row["target"]) if "target" in row else round(MASKED * source) if folder == "pretraining" else 0
    batch = int(row["batch"])
    updates = row.get("updates", "-")
    updates = math.ceil(documents / batch) * int(row["epochs"]) if updates == "-" else int(updates)
    return Training(known[0], attention, source, target, documents, batch, int(row["device_batch"]), updates)


def table(experiments: Sequence[str], recompute: bool) -> str:
    """Write the estimates of experiments as a table in Markdown."""
    rows = [["experiment", "PFLOP an update", "updates", "GiB a GPU", f"tokens of a document that fills {LARGE} GiB"]]
    for experiment in experiments:
        training = load(experiment)
        gib = sum(memory(training, recompute).values()) / GIB
        work, tokens = operations(training, recompute) / 1e15, longest(training, LARGE, recompute)
        rows.append([experiment, f"{work:.1f}", f"{training.updates}", f"{gib:.0f}", f"{tokens:,}"])
    return markdown(rows)


def table_of_windows(experiments: Sequence[str], windows: Sequence[int]) -> str:
    """Write what one window in the layers with level two costs, beside two levels, as a table in Markdown.

    A key costs a token 2·width multiply-adds, so level two costs as much as level_two / (2·width) keys.
    """
    shares = [f"encoder with a window of {window} there" for window in windows]
    rows = [["experiment", "level two's cost in keys", "window of equal cost, tokens a side", *shares]]
    for experiment in experiments:
        training = load(experiment)
        size, attention = training.size, training.attention
        keys = level_two(size.width, attention) / (2 * size.width)
        counts = [
            multiply_adds(size, levels, training.source, 0)["encoder"] / training.source
            for levels in (attention, replace(attention, pooled_layers=0))
        ]
        wider = [4 * size.width * (window - attention.window) * attention.pooled_layers for window in windows]
        row = [experiment, f"{keys:.0f}", f"{attention.window + keys / 2:.0f}"]
        rows.append([*row, *(f"{(counts[1] + more) / counts[0]:.3f} ×" for more in wider)])
    return markdown(rows)


def table_of_layers(widths: Sequence[int]) -> str:
    """Write the keys and the multiply-adds of :data:`LAYERS` for each token as a table in Markdown."""
    rows = [["attention of a layer", "keys a token", *(f"million multiply-adds a token, d {d}" for d in widths)]]
    for name, attention in LAYERS.items():
        counts = (f"{of_layer(width, attention) / 1e6:.2f}" for width in widths)
        rows.append([name, str(attention.keys), *counts])
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiments", nargs="*", metavar="FOLDER/NAME", help="lines of experiments.txt")
    parser.add_argument("--no-recompute", action="store_true", help="keep activations instead of recomputing them")
    parser.add_argument(
        "--windows", nargs="+", type=int, metavar="W", help="multiply-adds with one window of W a side for two levels"
    )
    parser.add_argument("--layer", nargs="+", type=int, metavar="D", help="one layer's attention at these widths")
    args = parser.parse_args(arguments)
    if bool(args.experiments) == bool(args.layer):
        parser.error("give experiments, or --layer with widths")
    try:
        if args.layer:
            print(table_of_layers(args.layer))
        elif args.windows:
            print(table_of_windows(args.experiments, args.windows))
        else:
            print(table(args.experiments, not args.no_recompute))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())

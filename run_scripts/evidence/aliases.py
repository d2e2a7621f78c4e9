"""How much a model takes tokens a period away for neighbours, as repeated positions make them look.

    python run_scripts/evidence/aliases.py DATA --path NAME=CHECKPOINT … [--period 256] [--blocks 64] [--output FILE]

Two measures of the upper layers, on the first blocks of the validation split. Attention: the mean weight of a key 1, 2
and 3 periods away (at most 1 token off), as a multiple of the mean weight 16 to 64 tokens beside these places. Bits per
masked token of names: as they are; when exactly the keys 1, 2, 3 … periods away (at most 2 tokens off) are hidden; and
when as many keys are hidden a quarter of a period nearer, or farther.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention import TwoLevelAttention
from fairseq_poolingformer.attention.call import Pairs, ScoreTerm
from fairseq_poolingformer.attention.probabilities import LevelWeights
from fairseq_poolingformer.attention.recorded_weights import recorded_weights
from fairseq_poolingformer.cli.eval_mlm import batches, distances_of, score, word_lengths
from fairseq_poolingformer.cli.models import load_models
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.text.whole_file import write_lines

NEAR = 32  # bits are also given of names whose other occurrences are all farther, in tokens
BESIDE = (16, 64)


@dataclass(frozen=True)
class Hidden(ScoreTerm):
    """Hides the keys 1, 2, 3 … periods away, at most 2 tokens off, or those ``shift`` tokens farther."""

    period: int
    shift: int = 0

    def scores(self, pairs: Pairs) -> Tensor:
        """(1 or B, 1, t, s) -inf at hidden pairs, else 0."""
        farther = pairs.distance(torch.device("cpu")).abs() - self.shift
        hidden = (farther > self.period // 2) & ((farther + 2) % self.period <= 4)
        scores = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
        return scores.view(-1, 1, *hidden.shape[-2:])


def upper_layers(model: nn.Module) -> list[TwoLevelAttention]:
    """The attention of the upper half of the encoder."""
    layers = model.encoder.sentence_encoder.layers
    return [layer.self_attn for layer in layers[len(layers) // 2 :]]


@contextmanager
def with_term(model: nn.Module, term: ScoreTerm) -> Iterator[None]:
    """Add a term to the scores of level one in the upper layers."""
    with ExitStack() as stack:
        for layer in upper_layers(model):
            hook = layer.register_forward_pre_hook(
                lambda module, args, kwargs: (args, {**kwargs, "score_terms": (*kwargs["score_terms"], term)}),
                with_kwargs=True,
            )
            stack.callback(hook.remove)
        yield


def weights_by_distance(weights: LevelWeights) -> Tensor:
    """(2, T) the sum of level one's weights at each distance, and the number of pairs that the window shows."""
    band = weights.level_one
    distance = (band.band_keys - torch.arange(band.band_keys.size(1))[None, :, None]).abs()
    shown = (band.band_keys >= 0).flatten()
    rows = band.band.mean((0, 1)).flatten()[shown], torch.ones(int(shown.sum()))
    return torch.stack([torch.zeros(band.band.size(2)).index_add(0, distance.flatten()[shown], row) for row in rows])


def multiples(sums: Tensor, period: int) -> list[float | None]:
    """The mean weight 1, 2, 3 periods away as a multiple of that beside; None where the window does not reach."""
    found: list[float | None] = []
    for place in (period, 2 * period, 3 * period):
        low, high = BESIDE
        sides = [*range(place - high, place - low + 1), *range(place + low, place + high + 1)]
        (weight, beside), (count, others) = (
            [row[torch.tensor([d for d in chosen if d < len(row)], dtype=torch.long)].sum() for chosen in kinds]
            for row, kinds in zip(sums, [([*range(place - 1, place + 2)], sides)] * 2, strict=True)
        )
        found.append(float(weight / count / (beside / others)) if count and others else None)
    return found


def measure(path: str, args: argparse.Namespace) -> list[str]:
    """The row of a checkpoint in the table."""
    (model,), task = load_models([path], "cpu", "fp32", task="long_masked_lm", data=args.data)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    texts = load_tokenizer(args.data).symbol_texts()
    texts += [b""] * (len(task.dictionary) - len(texts))
    chosen = np.flatnonzero(dataset.sizes == dataset.sizes.max())[: args.blocks]
    items = {int(number): dataset[int(number)] for number in chosen}
    groups = batches(chosen, dataset.sizes, 8192)
    items_in_order = [items[number] for group in groups for number in group]
    is_name = np.concatenate([word_lengths(item, dataset) for item in items_in_order]) >= 2
    is_far = is_name & (np.concatenate([distances_of(item, dataset, texts) for item in items_in_order]) > NEAR)

    def bits() -> list[str]:
        found = [score(model, dataset.collater([items[number] for number in group]), "cpu") for group in groups]
        nll = np.concatenate(found) / math.log(2)
        return [f"{nll[is_name].mean():.3f} / {nll[is_far].mean():.3f}"]

    sums: Tensor | int = 0
    with recorded_weights(model, weights_by_distance) as found, torch.inference_mode():
        names = [name for name, module in model.named_modules() if module in upper_layers(model)]
        for number in chosen[:16]:
            model(items[int(number)]["tokens"][None], features_only=True)
            sums = sums + sum(found[name] for name in names)
    row = ["-" if value is None else f"{value:.1f}" for value in multiples(sums, args.period)] + bits()
    for shift in (0, -args.period // 4, args.period // 4):
        with with_term(model, Hidden(args.period, shift)):
            row += bits()
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--path", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--period", type=int, default=256, metavar="N", help="default: %(default)s")
    parser.add_argument("--blocks", type=int, default=64, metavar="N", help="default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    places = [f"weight at {k * args.period}" for k in (1, 2, 3)]
    rows = [["", *places, f"bits: all / > {NEAR}", "hidden: aliases", "nearer", "farther"]]
    for given in args.path:
        name, path = given.split("=", 1)
        rows.append([name, *measure(path, args)])
    text = aligned(rows)
    print(text, flush=True)
    if args.output:
        write_lines(args.output, [text])


if __name__ == "__main__":
    main()

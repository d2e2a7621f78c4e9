"""How much the quickstart's reader takes tokens 384, 768 … away for neighbours, for two ways to lengthen positions.

    python run_scripts/evidence/reader_aliases.py DATA READER.pt    # corpus and reader.pt of run_scripts/quickstart.sh

The last layer has full attention, and the 384 learned positions are made 2,048. A number is the mean weight of the keys
so far away (at most 1 token off), as a multiple of the mean weight 16 to 64 tokens beside these places.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from fairseq import tasks
from fairseq.data import data_utils

import fairseq_poolingformer
from fairseq_poolingformer.attention.probabilities import LevelWeights
from fairseq_poolingformer.attention.recorded_weights import recorded_weights
from fairseq_poolingformer.text.table import aligned
from run_scripts.evidence.aliases import multiples, weights_by_distance

LONGEST, DOCUMENTS = 2048, 6


def by_head(weights: LevelWeights) -> list[torch.Tensor]:
    """What :func:`weights_by_distance` says of each head."""
    band, heads = weights.level_one, range(weights.level_one.band.size(1))
    return [weights_by_distance(LevelWeights(band._replace(band=band.band[:, [head]]), None)) for head in heads]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("reader", type=Path)
    given = parser.parse_args(arguments)
    fairseq_poolingformer.register()
    stored = torch.load(given.reader, map_location="cpu", weights_only=False)
    args = stored["args"]
    period = args.max_source_positions
    args.data, args.max_source_positions = str(given.data), LONGEST
    documents = data_utils.load_indexed_dataset(str(given.data / "valid.source-target.source"), None)
    rows = [["weight at", *(f"{k * period}" for k in (1, 2, 3))]]
    for init in ("repeat", "interpolate"):
        args.position_init = init
        task = tasks.setup_task(args)
        model = task.build_model(args).eval()
        model.load_state_dict(dict(stored["model"]), strict=True)
        last = f"encoder.layers.{args.encoder_layers - 1}.self_attn"
        sums: list[torch.Tensor] = []
        with torch.inference_mode(), recorded_weights(model, by_head) as found:
            for number in range(DOCUMENTS):
                tokens = torch.cat([torch.tensor([task.source_dictionary.bos()]), documents[number]])
                tokens = tokens[:LONGEST]
                model.encoder(tokens[None])
                padded = [F.pad(row, (0, LONGEST - len(tokens))) for row in found[last]]
                sums = [a + b for a, b in zip(sums, padded, strict=True)] if sums else padded
        for head, row in enumerate(sums):
            cells = ["-" if value is None else f"{value:.2f}" for value in multiples(row, period)]
            rows.append([f"{init}, head {head}", *cells])
    print(aligned(rows), flush=True)


if __name__ == "__main__":
    main()

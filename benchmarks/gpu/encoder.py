"""Launches of one encoder layer of fairseq's, with its activations recomputed, beside an ordinary layer.

    python benchmarks/gpu/encoder.py [--lines]

It needs fairseq. Counts are of two heads and C = 32, with one global token; they do not depend on sizes.
"""

from __future__ import annotations

import argparse
import logging
import warnings

import count
import layers
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

import fairseq_poolingformer  # noqa: F401
from fairseq_poolingformer.models import encoder
from fairseq_poolingformer.models.bart import PoolingformerBART


class Ordinary(layers.Ordinary):
    """Full attention of (T, B, C)."""

    def forward(self, x: Tensor, masks: layers.Masks, score_terms: tuple = ()) -> Tensor:
        return super().forward(x.transpose(0, 1), masks).transpose(0, 1)


def flags(recompute: bool, **options: object) -> argparse.Namespace:
    """The options of a Poolingformer-BART with 32 channels, with those that are given."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    PoolingformerBART.add_args(parser)
    args = parser.parse_args([], argparse.Namespace(**options))
    args.encoder_embed_dim, args.encoder_ffn_embed_dim = 32, 64
    args.encoder_attention_heads = args.decoder_attention_heads = 2
    args.dropout = args.attention_dropout = 0.1
    args.quant_noise_pq = args.quant_noise_scalar = 0
    args.checkpoint_activations, args.max_source_positions = recompute, 16384
    ARCH_CONFIG_REGISTRY["poolingformer_bart_base"](args)
    return args


def as_on_a_gpu() -> None:
    """Drop activations by PyTorch's dropout, as on a GPU."""
    encoder.SeededDropout.forward = FairseqDropout.forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=16384, help="tokens")
    parser.add_argument("--lines", action="store_true", help="PyTorch's operators by line of the project")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    as_on_a_gpu()
    print(f"{'layer':24s}{'recompute':>10s}{'padding':>8s}  forward: Triton, all  backward: Triton, all   both  waits")
    for name, number in (("ordinary (SDPA)", None), ("window", 0), ("two levels", 5)):
        for recompute in (False, True):
            for with_padding in (False, True):
                cfg = TransformerConfig.from_namespace(flags(recompute))
                layer: nn.Module = encoder.PoolingformerEncoderLayer(cfg, number or 0)
                if number is None:
                    layer.self_attn = Ordinary(32, 2)
                length = 32 if number is None else options.length
                masks = layers.masks_of(length, with_global=True, with_padding=with_padding)
                x = torch.randn(length, 1, 32, requires_grad=True)
                counts = count.passes(encoder.wrapped(layer, cfg), x, masks=masks)
                count.report(f"{name:24s}{recompute:10d}{with_padding:8d}", counts, options.lines)


if __name__ == "__main__":
    main()

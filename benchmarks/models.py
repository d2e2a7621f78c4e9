"""The models of the benchmarks, with random weights and without files: fairseq's, ours, and Hugging Face's LED."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import Tensor, nn

import fairseq_poolingformer
from fairseq_poolingformer.weights.convert import to_fairseq

# fairseq requires torchaudio; one made for another torch does not load, which transformers does not survive.
sys.modules.setdefault("torchaudio", None)
from transformers import LEDConfig, LEDForConditionalGeneration  # noqa: E402

fairseq_poolingformer.register()
logging.getLogger("transformers").setLevel(logging.ERROR)
BOS, PAD, EOS, FIRST_WORD = 0, 1, 2, 4


@dataclass(frozen=True)
class Size:
    """Layers of encoder and of decoder, widths, heads, and the encoder layers with level two."""

    layers: int
    embed_dim: int
    ffn_embed_dim: int
    heads: int
    pooled_layers: str


SIZES = {
    "tiny": Size(2, 64, 256, 4, "1"),
    "base": Size(6, 768, 3072, 12, "3-5"),
    "large": Size(12, 1024, 4096, 16, "6-11"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which models."""
    add = parser.add_argument
    add("--size", default="base", choices=tuple(SIZES), help="BART's sizes; tiny is for trying out")
    add("--vocabulary", type=int, default=50265, help="words, special symbols included (default: %(default)s)")
    add("--led-window", type=int, default=512, help="LED's window, tokens on each side (default: %(default)s)")


def random_document(length: int, vocabulary: int, seed: int = 0) -> Tensor:
    """(1, length) random words between ``<s>`` and ``</s>``."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(FIRST_WORD, vocabulary, (1, length), generator=generator)
    tokens[:, 0], tokens[:, -1] = BOS, EOS
    return tokens


def sample(source: Tensor, target: Tensor) -> dict[str, Any]:
    """A batch as fairseq's data sets give it, of one document and its summary, (1, S) and (1, T)."""
    return collate([{"id": 0, "source": source[0], "target": target[0]}], PAD, EOS, left_pad_source=False)


def huggingface_led(
    args: argparse.Namespace,
    *,
    source_length: int,
    target_length: int,
    attention_dropout: float = 0.0,
    init_std: float = 0.02,
) -> LEDForConditionalGeneration:
    """Hugging Face's LED with random weights, in float32 on the CPU."""
    size, window = SIZES[args.size], 2 * args.led_window
    config = LEDConfig(
        vocab_size=args.vocabulary,
        d_model=size.embed_dim,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_ffn_dim=size.ffn_embed_dim,
        decoder_ffn_dim=size.ffn_embed_dim,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        attention_window=window,
        max_encoder_position_embeddings=-(-source_length // window) * window,
        max_decoder_position_embeddings=target_length,
        dropout=0.1,
        attention_dropout=attention_dropout,
        init_std=init_std,
    )
    torch.manual_seed(0)
    return LEDForConditionalGeneration(config)


def global_attention_mask(source: Tensor) -> Tensor:
    """Hugging Face's mask of global tokens, (B, S): the first is one."""
    mask = torch.zeros_like(source)
    mask[:, 0] = 1
    return mask


def fairseq_model(args: argparse.Namespace, arch: str, *flags: str) -> tuple[Any, Any, nn.Module]:
    """A model as fairseq-train makes it, in float32 on the CPU."""
    size = SIZES[args.size]
    shape = ("--task", "long_summarization", "--arch", f"{arch}_base")
    for side in ("encoder", "decoder"):
        shape += (f"--{side}-layers", str(size.layers), f"--{side}-embed-dim", str(size.embed_dim))
        shape += (f"--{side}-ffn-embed-dim", str(size.ffn_embed_dim), f"--{side}-attention-heads", str(size.heads))
    if arch == "led_bart":
        shape += ("--window-size", str(args.led_window))
    if arch == "poolingformer_bart":
        shape += ("--pooled-layers", size.pooled_layers)
    logging.getLogger().setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        for language in ("source", "target"):
            words = "".join(f"w{number} 1\n" for number in range(args.vocabulary - FIRST_WORD))
            Path(folder, f"dict.{language}.txt").write_text(words, encoding="utf-8")
        parsed = options.parse_args_and_arch(options.get_training_parser(), [folder, *shape, *flags])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of hydra, which fairseq calls in ways that it has renamed
            config = convert_namespace_to_omegaconf(parsed)
        task = tasks.setup_task(config.task)
        torch.manual_seed(0)
        return config, task, task.build_model(config.model)


def led_from_huggingface(
    args: argparse.Namespace, theirs: LEDForConditionalGeneration, *flags: str
) -> tuple[Any, Any, nn.Module]:
    """This project's LED with Hugging Face's weights; arguments and results as of :func:`fairseq_model`."""
    converted = to_fairseq(theirs.config.to_dict(), theirs.state_dict())
    lengths = []
    for side in ("source", "target"):
        lengths += [f"--max-{side}-positions", str(converted.settings[f"max_{side}_positions"])]
    config, task, model = fairseq_model(args, "led_bart", *lengths, *flags)
    model.load_state_dict(converted.state)
    return config, task, model

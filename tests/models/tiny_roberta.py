"""Tiny Poolingformer-RoBERTas through fairseq's own option parsing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from fairseq.models.roberta import RobertaModel

from tests.models import tiny_bart

PAD, BOS, EOS = tiny_bart.PAD, tiny_bart.BOS, tiny_bart.EOS
POSITIONS = "--max-positions"
SIZES = tiny_bart.ENCODER
parse = partial(tiny_bart.parse, arch="poolingformer_roberta_tiny", task="masked_lm")
build = partial(tiny_bart.build, arch="poolingformer_roberta_tiny", task="masked_lm")


def write_dictionary(folder: Path, num_words: int = 30) -> Path:
    """A folder with ``dict.txt``; the masked_lm task adds ``<mask>``."""
    return tiny_bart.write_dictionaries(folder, num_words, "dict.txt")


def encoder_of(model):
    return model.encoder.sentence_encoder


def pretrained(folder: Path) -> dict[str, torch.Tensor]:
    """The state dict of a RoBERTa of fairseq with 20 positions."""
    task, _ = build(folder, *SIZES)
    torch.manual_seed(7)
    return RobertaModel.build_model(parse(folder, *SIZES, POSITIONS, "20", arch="roberta"), task).state_dict()


def sentences(lengths: list[int], padded_to: int = 0, seed: int = 1) -> torch.Tensor:
    """(B, T) random ``<s> … </s>`` of words, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(padded_to, *lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, 34, (length,), generator=generator)
        row[0], row[length - 1] = BOS, EOS
    return rows


def as_of_2019(state):
    """The names that fairseq's published ``roberta.*`` and ``xlmr.*`` have."""
    old = {}
    for name, value in state.items():
        name = name.replace("encoder.sentence_encoder", "decoder.sentence_encoder")
        name = name.replace("encoder.lm_head", "decoder.lm_head").replace("layernorm_embedding", "emb_layer_norm")
        if ".self_attn.q_proj." in name:
            parts = [name.replace("q_proj", f"{letter}_proj") for letter in "qkv"]
            parts = [part.replace("decoder.", "encoder.", 1) for part in parts]
            old[name.replace(".q_proj.", ".in_proj_")] = torch.cat([state[part] for part in parts])
        elif ".self_attn.k_proj." not in name and ".self_attn.v_proj." not in name:
            old[name] = value
    return old

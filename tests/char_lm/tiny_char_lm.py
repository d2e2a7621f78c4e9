"""Tiny character language models through fairseq's own option parsing."""

from __future__ import annotations

import torch
from fairseq import options, tasks

from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE
from tests.models.tiny_bart import USER_DIR

SMALL = ("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "24", "--decoder-attention-heads", "4")


def parse(arch: str, *flags: str):
    """The options of a training."""
    arguments = ["text", "--user-dir", USER_DIR, "--task", "char_lm", "--criterion", "char_lm", "--arch", arch, "--cpu"]
    return options.parse_args_and_arch(options.get_training_parser(), [*arguments, *flags])


def as_parsed(arch: str, *flags: str):
    """The model of these options."""
    args = parse(arch, *flags)
    return tasks.setup_task(args).build_model(args)


def build(arch: str, *flags: str, seed: int = 0):
    """A small model in float64 and eval mode, with parameters so large that every one of them matters."""
    torch.manual_seed(seed)
    model = as_parsed(arch, *SMALL, *flags).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("_proj.weight", "_bias", "tion.bias")) or ".fc" in name or ".gate" in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
        torch.nn.init.normal_(model.decoder.embed_tokens.weight, std=1 / model.decoder.embed_scale)
        if model.decoder.spans is not None:
            for z in model.decoder.spans.z:
                z.uniform_(0.0, 0.8)
            if model.decoder.spans.shared is not None:
                model.decoder.spans.shared.fill_(0.1)
    return model


def text(rows: int, length: int, seed: int = 1) -> torch.Tensor:
    """(B, T) indices of random bytes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_BYTE, FIRST_BYTE + 256, (rows, length), generator=generator)

"""Options that several commands have: where and how precisely to compute, with what memory."""

import argparse

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision``, a key of :data:`DTYPES`, and ``--device``."""
    parser.add_argument(
        "--precision", choices=DTYPES, default="fp32", help="of parameters and computation (default: %(default)s)"
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument(
        "--device", type=device_name, default=device, help="cpu, cuda, cuda:1, … (default here: %(default)s)"
    )


def device_name(name: str) -> str:
    """The type of an option that names a device, which must be there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"{name!r} is no device; give cpu, cuda or cuda:1") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"{name} is not there: torch finds {torch.cuda.device_count()} GPUs here")
    return name

"""Options that several commands have: where and how precisely to compute, with what memory, which share of the work."""

import argparse

import torch

from fairseq_poolingformer.command import UsageError, natural, positive

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


def add_memory_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--memory-length``, whose default is described by ``default``."""
    parser.add_argument(
        "--memory-length",
        type=natural,
        metavar="M",
        help=f"bytes that each layer keeps of what came before, where its windows reach as far; 0: none "
        f"(default: {default})",
    )


def add_shard_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--num-shards``, with ``what`` as its help, and ``--shard-id``."""
    parser.add_argument("--num-shards", type=positive, default=1, metavar="N", help=what)
    parser.add_argument("--shard-id", type=int, default=0, metavar="K", help="which, from 0")


def check_shard(args: argparse.Namespace) -> None:
    """Raise UsageError unless there is such a shard."""
    if not 0 <= args.shard_id < args.num_shards:
        raise UsageError(f"--shard-id must be between 0 and {args.num_shards - 1}, got {args.shard_id}")


def shard(args: argparse.Namespace, count: int) -> range:
    """The numbers, of 0 to ``count`` − 1, that fall to this shard."""
    return range(count * args.shard_id // args.num_shards, count * (args.shard_id + 1) // args.num_shards)

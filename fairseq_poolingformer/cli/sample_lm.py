"""``poolingformer-sample-lm``: a character language model continues a text."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from fairseq_poolingformer.cli.eval_lm import set_memory_length
from fairseq_poolingformer.cli.models import load_models
from fairseq_poolingformer.cli.options import add_device_options, add_memory_option
from fairseq_poolingformer.command import UsageError, natural, positive, run_command
from fairseq_poolingformer.text.dictionary import EOS, FIRST_BYTE, bytes_to_ids


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write the prompt and its continuation to standard output."""
    if not args.temperature >= 0:  # nan is not
        raise UsageError(f"--temperature must be 0 or more, got {args.temperature}")
    prompt = args.prompt_file.read_bytes() if args.prompt_file else args.prompt.encode("utf-8", "surrogateescape")
    (model,), task = load_models([args.path], args.device, args.precision, task="char_lm")
    if args.memory_length is not None:
        set_memory_length(model, args.memory_length)
    elif getattr(model, "memory_length", 0) == 0 and getattr(model, "reach", None) is not None:
        set_memory_length(model, model.reach)  # the windows see the same, and each byte is read once
    started = time.perf_counter()
    written = sample(
        model,
        prompt,
        args.length,
        context=args.context or task.cfg.tokens_per_sample,
        temperature=args.temperature,
        top_k=args.top_k,
        seed=args.seed,
        device=args.device,
    )
    out = sys.stdout.buffer
    out.write(prompt)
    for byte in written:
        out.write(bytes([byte]))
        out.flush()
    out.write(b"\n")
    out.flush()
    print(f"{args.length:,} bytes in {time.perf_counter() - started:.1f} s", file=sys.stderr)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-sample-lm",
        description="Continue a text, byte by byte. A model with memory or windows takes the same time for each byte; "
        "a model that sees everything and has no memory reads the last --context bytes again for each byte.",
        epilog='example:\n  poolingformer-sample-lm --model run/checkpoint_best.pt --prompt "In the year " --length 99',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", "--path", dest="path", metavar="MODEL", required=True, help="checkpoint of task char_lm")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", default="", help="the text to continue (default: none)")
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="a file with the prompt")
    add("--length", type=positive, default=1000, metavar="N", help="bytes to write (default: %(default)s)")
    add("--temperature", type=float, default=1.0, help="divides the logits; 0: the likeliest byte (default: 1)")
    add("--top-k", type=natural, default=0, metavar="K", help="choose among the K likeliest bytes; 0: all (default)")
    add("--seed", type=int, default=1, help="seed of the random choices (default: %(default)s)")
    add(
        "--context",
        type=positive,
        metavar="N",
        help="bytes read at a time (default: the checkpoint's --tokens-per-sample)",
    )
    add_memory_option(parser, "the model's; as far as its windows reach, where it has none")
    add_device_options(parser)
    return parser


def sample(
    model: nn.Module,
    prompt: bytes,
    length: int,
    *,
    context: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 1,
    device: str = "cpu",
) -> Iterator[int]:
    """Yield the bytes with which a model continues a text."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.from_numpy(bytes_to_ids(prompt).astype("int64")) if prompt else torch.tensor([EOS])
    read = _with_memory if getattr(model, "memory_length", 0) > 0 else _with_context
    reader = read(model, ids, context, device)
    logits = next(reader)
    for number in range(length):
        byte = choose(logits[FIRST_BYTE:].float().cpu(), temperature, top_k, generator)
        yield byte
        if number < length - 1:
            logits = reader.send(byte + FIRST_BYTE)


def choose(logits: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> int:
    """Draw a number from the softmax of ``logits / temperature`` (V,), or of its ``top_k`` largest."""
    if temperature == 0:
        return int(logits.argmax())
    values, numbers = logits.topk(min(top_k or len(logits), len(logits)))
    probabilities = (values / temperature).softmax(-1)
    return int(numbers[torch.multinomial(probabilities, 1, generator=generator)])


def _with_memory(model: nn.Module, ids: Tensor, context: int, device: str) -> Generator[Tensor, int, None]:
    """Yields logits (V,) after the prompt, then after each id that is sent; reads each id once."""
    memory: dict = {}
    while True:
        for part in ids.split(context):
            logits, extra = _read(model, part, device, memory)
            memory = {"memory": extra["memory"]}
        ids = torch.tensor([(yield logits[0, -1])])


def _with_context(model: nn.Module, ids: Tensor, context: int, device: str) -> Generator[Tensor, int, None]:
    """The same for a model without memory, which reads the last ``context`` ids each time."""
    while True:
        logits, _ = _read(model, ids[-context:], device, {})
        ids = torch.cat([ids[-context:], torch.tensor([(yield logits[0, -1])])])


@torch.inference_mode()
def _read(model: nn.Module, ids: Tensor, device: str, memory: dict) -> tuple[Tensor, dict]:
    return model(ids[None].to(device), **memory)


if __name__ == "__main__":
    sys.exit(main())

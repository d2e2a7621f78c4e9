"""One training step of a model with adaptive spans, by the span: time and memory must shrink with it.

    python benchmarks/adaptive_span.py [--arch adaptive_span_lm] [--spans 64,512,2048,8192] [--layers 12]
        [--tokens-per-sample 512] [--batch-size 1] [--device cpu] [--repeats 3]

Every head of the model is given the same span; its memory is full. A step is forward, backward and Adagrad's update of
one block, with the memory that the step before has left. Beside it the same model with spans that are masked only:
it keeps the whole memory and computes every score. Nothing is timed before both have given the same loss and the same
gradients.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY
from measure import DTYPES, Case, add_arguments, measure, must_agree, parse, print_header, print_table
from torch import Tensor

from fairseq_poolingformer.char_lm.adaptive_span import AdaptiveSpans
from fairseq_poolingformer.char_lm.models import CharLanguageModel
from fairseq_poolingformer.char_lm.task import byte_dictionary
from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE


class Bytes:
    """The part of a task that a model reads."""

    source_dictionary = byte_dictionary()


class MaskedSpans(AdaptiveSpans):
    """Spans that hide keys without sparing their computation."""

    def reaches(self, spans: Tensor) -> list[int]:
        """Always S."""
        return [self.max_span] * len(spans)


def build(args: argparse.Namespace, span: int, trimmed: bool) -> CharLanguageModel:
    """The model, every head's span so many positions."""
    settings = argparse.Namespace(decoder_layers=args.layers, max_span=args.max_span, checkpoint_activations=False)
    ARCH_CONFIG_REGISTRY[args.arch](settings)
    torch.manual_seed(0)
    model = CharLanguageModel.build_model(settings, Bytes())
    for z in model.decoder.spans.z:
        torch.nn.init.constant_(z, span / args.max_span)
    if not trimmed:
        model.decoder.spans.__class__ = MaskedSpans
    return model.to(args.device, getattr(torch, args.dtype)).train()


def blocks(args: argparse.Namespace, number: int) -> list[Tensor]:
    """Random text, (B, T + 1) each, the last byte of each the target only."""
    generator = torch.Generator().manual_seed(1)
    shape = (args.batch_size, args.tokens_per_sample + 1)
    return [
        torch.randint(FIRST_BYTE, FIRST_BYTE + 256, shape, generator=generator).to(args.device) for _ in range(number)
    ]


def loss_and_memory(
    model: CharLanguageModel, block: Tensor, memory: list[Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """The loss of a training step, in nats, and the memory for the next block."""
    logits, extra = model(block[:, :-1], memory=memory)
    loss = F.cross_entropy(logits.float().flatten(0, 1), block[:, 1:].flatten()) + extra["span_loss"]
    return loss, extra["memory"]


def full_memory(model: CharLanguageModel, args: argparse.Namespace) -> list[Tensor]:
    """A memory as long as the model keeps it, of random inputs."""
    generator = torch.Generator().manual_seed(2)
    _, memory = loss_and_memory(model, blocks(args, 1)[0][:, :3], None)
    lengths = model.decoder.spans.reaches(model.decoder.spans())
    width = memory[0].size(-1)
    # the last positions of a longer memory are those of a shorter one
    whole = torch.randn(len(lengths), args.batch_size, args.max_span, width, generator=generator)
    return [x[:, args.max_span - n :].to(memory[0]) for x, n in zip(whole, lengths, strict=True)]


def step(args: argparse.Namespace, span: int, trimmed: bool) -> Callable[[], float]:
    """A training step with full memory, and its loss."""
    model = build(args, span, trimmed)
    memory, (block,) = full_memory(model, args), blocks(args, 1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-4)

    def run() -> float:
        optimizer.zero_grad()
        loss, _ = loss_and_memory(model, block, memory)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def check(args: argparse.Namespace) -> None:
    """Trimmed and masked are the same function, gradients and all."""
    small = argparse.Namespace(
        **{**vars(args), "layers": 2, "max_span": 256, "tokens_per_sample": 64, "dtype": "float32"}
    )
    found = []
    for trimmed in (True, False):
        model = build(small, 60, trimmed).eval()
        loss, _ = loss_and_memory(model, blocks(small, 1)[0], full_memory(model, small))
        loss.backward()
        found.append([loss, *(p.grad for p in model.parameters())])
    for trimmed, masked in zip(*found, strict=True):
        must_agree("trimmed spans", trimmed, masked, tolerance=1e-4)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--arch", default="adaptive_span_lm", help="one with adaptive spans (default: %(default)s)")
    add("--layers", type=int, default=12, help="(default: %(default)s)")
    add("--max-span", type=int, default=8192, help="S (default: %(default)s)")
    add("--spans", default="64,512,2048,8192", help="positions, separated by commas (default: %(default)s)")
    add("--tokens-per-sample", type=int, default=512, help="of a block (default: %(default)s)")
    add("--batch-size", type=int, default=1, help="blocks (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES)
    add_arguments(result, repeats=3)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, measure, print the table."""
    args = parse(parser(), arguments)
    torch.set_num_threads(args.threads)
    check(args)
    spans = [int(span) for span in args.spans.split(",")]
    cases = [Case("masked only", partial(step, args, spans[0], False))]
    cases += [Case(f"span {span}", partial(step, args, span, True)) for span in spans]
    results = measure(cases, args)
    print_header(
        args,
        f"{args.arch}, {args.layers} layers, S {args.max_span}, training step on {args.batch_size} × "
        f"{args.tokens_per_sample} bytes, {args.dtype}",
    )
    print_table(results, tokens=args.batch_size * args.tokens_per_sample)


if __name__ == "__main__":
    main()

"""One training step of whole models: Poolingformer and LED in fairseq beside Hugging Face's LED and other kernels.

    python benchmarks/training_step.py [--size base] [--source-length 4096] [--target-length 256] [--dtype float32]
        [--checkpoint-activations] [--device cpu] [--repeats 3] [--allocator both] [--alone]

A step is forward, loss, backward, gradient clipping and optimizer update on one document: in fairseq what
``fairseq-train`` does (its Trainer, task, criterion, optimizer), with Hugging Face its own loss and what its Trainer
does by default (autocast around float32 weights, torch's fused AdamW). Dropout is 0.1 in both. Nothing is timed before
this project's LED has given Hugging Face's logits and loss with Hugging Face's weights, and each other system the
encoder output of the plain reference. ``--systems flex`` is the same Poolingformer whose levels PyTorch's
FlexAttention computes, on a GPU only and without attention dropout; ``sdpa`` has full attention in each layer, by
PyTorch's own kernel.

The memory beyond the model is what a step needs above weights and optimizer state: activations and gradients. Divided
by the tokens of the source it is the memory of a token; run with and without --checkpoint-activations to compare.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.trainer import Trainer
from fairseq.utils import apply_to_sample
from measure import DTYPES, Case, add_arguments, measure, must_agree, parse, print_header, print_table
from models import (
    SIZES,
    fairseq_model,
    global_attention_mask,
    huggingface_led,
    led_from_huggingface,
    random_document,
    sample,
)
from models import add_arguments as add_model_arguments
from torch import Tensor, nn

from fairseq_poolingformer.attention import TwoLevelAttention
from fairseq_poolingformer.settings import layer_numbers

CLIP_NORM, LEARNING_RATE = 0.1, 3e-5
LOSS_SCALE = 128  # where both begin with float16, so that no step is skipped
WARM_UP_LENGTH = 32


def batch(args: argparse.Namespace, source_length: int) -> tuple[Tensor, Tensor]:
    """A document and a summary, (1, S) and (1, T)."""
    target = random_document(args.target_length, args.vocabulary, seed=1)
    return random_document(source_length, args.vocabulary), target


def huggingface_step(args: argparse.Namespace) -> Callable[[], float]:
    """A step of Hugging Face's LED, and its loss."""
    dtype, device = getattr(torch, args.dtype), args.device
    model = huggingface_led(
        args,
        source_length=args.source_length,
        target_length=args.target_length,
        attention_dropout=args.attention_dropout,
    )
    model.to(device, dtype if args.peer_precision == "weights" else torch.float32).train()
    if args.checkpoint_activations:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
    autocast = dtype != torch.float32 and args.peer_precision == "autocast"
    scaler = torch.amp.GradScaler(device, init_scale=LOSS_SCALE, enabled=autocast and dtype == torch.float16)

    def step(source: Tensor, labels: Tensor) -> float:
        optimizer.zero_grad()
        with torch.autocast(device, dtype, enabled=autocast):
            mask = global_attention_mask(source)
            loss = model(input_ids=source, global_attention_mask=mask, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    step(*(tokens.to(device) for tokens in batch(args, WARM_UP_LENGTH)))  # makes the optimizer's state
    optimizer.zero_grad()
    inputs = [tokens.to(device) for tokens in batch(args, args.source_length)]
    return lambda: step(*inputs)


def fairseq_step(args: argparse.Namespace, arch: str, name: str | None = None) -> Callable[[], float | None]:
    """A step of fairseq's Trainer, and its loss in bits; with ``name`` of a model of that name in ``OURS``."""
    flags = [
        *("--max-source-positions", args.source_length, "--max-target-positions", args.target_length),
        *("--dropout", 0.1, "--attention-dropout", args.attention_dropout, "--clip-norm", CLIP_NORM),
        *("--criterion", args.criterion, "--label-smoothing", 0.1, "--optimizer", args.optimizer),
        *("--adam-betas", "(0.9, 0.999)", "--adam-eps", 1e-8, "--weight-decay", 0.01, "--lr", LEARNING_RATE),
        *("--fp16-init-scale", LOSS_SCALE, "--no-save", "--save-dir", tempfile.gettempdir()),
        *{"float32": (), "bfloat16": ("--bf16",), "float16": ("--fp16",)}[args.dtype],
        *(("--checkpoint-activations",) if args.checkpoint_activations else ()),
        *(("--cpu",) if args.device == "cpu" else ()),
        *(OURS[name](args) if name else ()),
    ]
    config, task, model = fairseq_model(args, arch, *map(str, flags))
    trainer = Trainer(config, task, model, task.build_criterion(config.criterion))
    trainer.begin_epoch(1)

    def step(inputs: dict[str, Any]) -> float | None:
        log = trainer.train_step([inputs], raise_oom=True)
        return None if log is None else float(log["loss"])

    # what is compiled for one length is compiled before anything counts
    step(sample(*batch(args, args.source_length if name == "flex" else WARM_UP_LENGTH)))
    trainer.zero_grad()
    inputs = sample(*batch(args, args.source_length))
    return lambda: step(inputs)


FULL = ("--window-size", "all", "--pooled-layers", "none", "--global-tokens", "0")


def one_window(tokens: int, args: argparse.Namespace) -> tuple[str, ...]:
    """Flags of the control: 128 tokens a side in the lower layers, and in those with level two one wider window."""
    size = SIZES[args.size]
    upper = layer_numbers(size.pooled_layers)
    windows = ",".join(str(tokens if layer in upper else 128) for layer in range(size.layers))
    return ("--window-size", windows, "--pooled-layers", "none")


OURS = {  # flags of models that differ in their attention alone, by the arguments
    "poolingformer": lambda args: (),
    "window-256": partial(one_window, 256),
    "window-512": partial(one_window, 512),  # as many multiply-adds as Poolingformer, or 2 % fewer at the large size
    "flex": lambda args: ("--attention-backend", "flex"),
    "sdpa": lambda args: (*FULL, "--attention-backend", "sdpa"),
}
SYSTEMS = {
    "huggingface-led": ("LED of Hugging Face", huggingface_step),
    "led": ("LED here", partial(fairseq_step, arch="led_bart")),
    "poolingformer": ("Poolingformer", partial(fairseq_step, arch="poolingformer_bart", name="poolingformer")),
    **{
        f"window-{tokens}": (
            f"one window, {tokens} in the upper layers",
            partial(fairseq_step, arch="poolingformer_bart", name=f"window-{tokens}"),
        )
        for tokens in (256, 512)
    },
    "flex": ("Poolingformer, FlexAttention", partial(fairseq_step, arch="poolingformer_bart", name="flex")),
    "sdpa": ("full attention, SDPA", partial(fairseq_step, arch="poolingformer_bart", name="sdpa")),
    "bart": ("full attention, fairseq's BART", partial(fairseq_step, arch="bart")),
}


@torch.no_grad()
def check_led(args: argparse.Namespace, length: int) -> None:
    """This project's LED gives Hugging Face's logits and loss with Hugging Face's weights, in float32."""
    source, target = batch(args, length)
    inputs = apply_to_sample(lambda x: x.to(args.device), sample(source, target))
    source, target = source.to(args.device), target.to(args.device)
    lengths = {"source_length": length, "target_length": args.target_length}
    theirs = huggingface_led(args, **lengths, init_std=0.05).eval()
    config, task, ours = led_from_huggingface(args, theirs, "--criterion", args.criterion)
    theirs, ours = theirs.to(args.device), ours.to(args.device).eval()
    expected = theirs(input_ids=source, global_attention_mask=global_attention_mask(source), labels=target)
    tolerance = 1e-4 if args.device == "cpu" else 1e-3  # a GPU's own order of summation
    must_agree("logits of LED here", ours(**inputs["net_input"])[0], expected.logits, tolerance)
    loss, count, _ = task.build_criterion(config.criterion)(ours, inputs)
    must_agree("loss of LED here", loss / count, expected.loss, tolerance)


@torch.no_grad()
def check_backend(args: argparse.Namespace, name: str, length: int) -> None:
    """The encoder of one of ``OURS`` gives the output of the reference backend, in float32."""
    flags = ("--max-source-positions", str(length), "--max-target-positions", str(args.target_length))
    _, _, model = fairseq_model(args, "poolingformer_bart", *flags, *OURS[name](args))
    encoder = model.encoder.to(args.device).eval()
    attentions = [module for module in encoder.modules() if isinstance(module, TwoLevelAttention)]
    for parameter in (parameter for module in attentions for parameter in module.parameters()):
        if parameter.dim() == 2:  # as they begin, attention is so even that little depends on who sees whom
            parameter.normal_(std=1.5 * parameter.size(1) ** -0.5)
    source = batch(args, length)[0].to(args.device)
    actual = encoder(source)["encoder_out"][0]
    for module in attentions:
        module.backend = "reference"
    expected = encoder(source)["encoder_out"][0]
    must_agree(f"the encoder of {SYSTEMS[name][0]}", actual, expected, 1e-4 if args.device == "cpu" else 1e-3)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add_model_arguments(result)
    add("--source-length", type=int, default=4096, help="tokens of the document (default: %(default)s)")
    add("--target-length", type=int, default=256, help="tokens of the summary (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES, help="16-bit: fairseq's --bf16 or --fp16")
    add(
        "--peer-precision",
        default="autocast",
        choices=("autocast", "weights"),
        help="with a 16-bit --dtype, Hugging Face's model has float32 weights under autocast, as its Trainer does, "
        "or weights of that dtype and no others (default: %(default)s)",
    )
    add("--attention-dropout", type=float, default=0.0, help="of all systems (default: %(default)s)")
    add("--checkpoint-activations", action="store_true", help="recompute each layer in the backward pass, in all")
    add("--criterion", default="linear_cross_entropy", help="fairseq's (default: %(default)s)")
    add("--optimizer", default="fused_adamw", help="fairseq's (default: %(default)s)")
    add(
        "--systems",
        nargs="+",
        default=["huggingface-led", "sdpa", "led", "window-256", "window-512", "poolingformer"],
        choices=tuple(SYSTEMS),
        help="what to time; ratios are to the first (default: %(default)s)",
    )
    add("--check-length", type=int, default=1030, help="tokens of the document in the checks (default: %(default)s)")
    add_arguments(result, repeats=3, allocators=("glibc", "kept", "both"))
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, measure, print the table."""
    args = parse(parser(), arguments)
    torch.set_num_threads(args.threads)
    if "flex" in args.systems and (args.device == "cpu" or args.attention_dropout):
        raise SystemExit("--systems flex: FlexAttention has no backward pass on a CPU, and no attention dropout")
    if {"huggingface-led", "led"} & set(args.systems):
        check_led(args, args.check_length)
    for name in OURS:
        if name in args.systems or name == "poolingformer":
            check_backend(args, name, args.check_length)
    recomputed = ", activations checkpointed" if args.checkpoint_activations else ""
    cases = [Case(name, partial(build, args)) for name, build in map(SYSTEMS.get, args.systems)]
    for allocator in ("glibc", "kept") if args.allocator == "both" else (args.allocator,):
        args.allocator = allocator
        print_header(
            args,
            f"training step, {args.size} size, batch 1, {args.source_length} tokens in, {args.target_length} out, "
            f"{args.dtype}, attention dropout {args.attention_dropout}{recomputed}; fairseq: {args.criterion}, "
            f"{args.optimizer}",
        )
        print_table(measure(cases, args), tokens=args.source_length)


if __name__ == "__main__":
    main()

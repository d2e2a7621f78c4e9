"""Beam search from one long document: Poolingformer and LED in fairseq beside Hugging Face's LED.

    python benchmarks/generation.py [--source-length 16384] [--tokens 256] [--beam 5] [--no-repeat-ngram-size 0]

Every system writes exactly --tokens tokens, ``<s>`` first and ``</s>`` last: fairseq's SequenceGenerator as
``fairseq-generate`` calls it for the task long_summarization, Hugging Face's ``generate`` with its cache. The last run
tells the encoder's time from that of decoding. Before it times anything, the script checks that this project's LED,
small and with Hugging Face's weights, finds Hugging Face's hypotheses for every beam and in greedy search.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from measure import DTYPES, Case, add_arguments, clock, measure, parse, print_header, print_table
from models import (
    BOS,
    EOS,
    fairseq_model,
    global_attention_mask,
    huggingface_led,
    led_from_huggingface,
    random_document,
)
from models import add_arguments as add_model_arguments
from torch import Tensor, nn

Search = Callable[[Tensor], list[list[int]]]


def huggingface_search(model: nn.Module, args: Namespace) -> Search:
    """(1, S) source -> the tokens of every beam, without the ``</s>`` that the decoder begins with."""
    length = args.tokens + 1  # Hugging Face counts that </s>

    def search(source: Tensor) -> list[list[int]]:
        found = model.generate(
            source,
            global_attention_mask=global_attention_mask(source),
            num_beams=args.beam,
            num_return_sequences=args.beam,
            do_sample=False,
            max_length=length,
            min_length=length - 1,  # a summary that ends at the limit is long enough
            forced_bos_token_id=BOS,
            forced_eos_token_id=EOS,
            no_repeat_ngram_size=args.no_repeat_ngram_size,
        )
        return found[:, 1:].tolist()

    return search


def fairseq_search(task: Any, model: nn.Module, args: Namespace) -> Search:
    """(1, S) source -> the tokens of every beam."""
    length = args.tokens - 1  # fairseq does not count the </s> at the end
    settings = {"beam": args.beam, "min_len": length, "max_len_b": length}
    generator = task.build_generator([model], Namespace(**settings, no_repeat_ngram_size=args.no_repeat_ngram_size))

    def search(source: Tensor) -> list[list[int]]:
        inputs = {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)], device=source.device)}
        found = task.inference_step(generator, [model], {"net_input": inputs})
        return [hypothesis["tokens"].tolist() for hypothesis in found[0]]

    return search


def timed(encoder: nn.Module, device: str) -> list[float]:
    """Make an encoder note the seconds of each call in the list that is returned."""
    calls: list[float] = []
    forward = encoder.forward

    def noted(*arguments: Any, **named: Any) -> Any:
        start = clock(device)
        output = forward(*arguments, **named)
        calls.append(clock(device) - start)
        return output

    encoder.forward = noted  # fairseq's generator calls forward itself, past hooks
    return calls


def generate(search: Search, encoder: nn.Module, args: Namespace) -> Callable[[], dict[str, float]]:
    """Make the function that is timed: it summarizes one document and returns the encoder's seconds."""
    source = random_document(args.source_length, args.vocabulary).to(args.device)
    calls = timed(encoder, args.device)

    def run() -> dict[str, float]:
        calls.clear()
        hypotheses = search(source)
        lengths = {len(tokens) for tokens in hypotheses}
        if lengths != {args.tokens} or len(hypotheses) != args.beam:
            raise ValueError(f"{len(hypotheses)} hypotheses of {lengths} tokens, not {args.beam} of {args.tokens}")
        return {"encoder": sum(calls)}

    return run


def huggingface_generation(args: Namespace) -> Callable[[], dict[str, float]]:
    """Hugging Face's LED."""
    model = huggingface_led(args, source_length=args.source_length, target_length=args.tokens + 1)
    model.to(args.device, getattr(torch, args.dtype)).eval()
    return generate(huggingface_search(model, args), model.get_encoder(), args)


def fairseq_generation(args: Namespace, arch: str) -> Callable[[], dict[str, float]]:
    """A model of this project."""
    lengths = ("--max-source-positions", args.source_length, "--max-target-positions", args.tokens + 1)
    config, task, model = fairseq_model(args, arch, *map(str, lengths))
    model.prepare_for_inference_(config)
    model.to(args.device, getattr(torch, args.dtype)).eval()
    return generate(fairseq_search(task, model, args), model.encoder, args)


SYSTEMS = {
    "huggingface-led": ("LED of Hugging Face", huggingface_generation),
    "led": ("LED here", partial(fairseq_generation, arch="led_bart")),
    "poolingformer": ("Poolingformer", partial(fairseq_generation, arch="poolingformer_bart")),
}


def check(args: Namespace) -> None:
    """Check that small models with the same weights find the same, in beam search as asked for and in greedy search."""
    small = {"size": "tiny", "vocabulary": 300, "led_window": 16, "tokens": 24}
    args = Namespace(**{**vars(args), **small})
    theirs = huggingface_led(args, source_length=90, target_length=args.tokens + 1, init_std=0.2).to(args.device).eval()
    _, task, ours = led_from_huggingface(args, theirs)
    ours.to(args.device).eval()
    sources = [random_document(90, args.vocabulary, seed).to(args.device) for seed in range(3)]
    for beam in (args.beam, 1):
        args.beam = beam
        for source in sources:
            actual, expected = fairseq_search(task, ours, args)(source), huggingface_search(theirs, args)(source)
            # as sets: fairseq adds the score of the forced </s>, Hugging Face does not, which changes their order
            if sorted(actual) != sorted(expected):
                raise SystemExit(f"LED here: beam {beam} writes other tokens than Hugging Face; nothing is timed")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add_model_arguments(result)
    add("--source-length", type=int, default=16384, help="tokens of the document (default: %(default)s)")
    add("--tokens", type=int, default=256, help="tokens to write, <s> and </s> included (default: %(default)s)")
    add("--beam", type=int, default=5, help="(default: %(default)s)")
    add(
        "--no-repeat-ngram-size",
        type=int,
        default=0,
        help="repeat no n-gram of this size; 0: allow it (default: %(default)s)",
    )
    add("--dtype", default="float32", choices=DTYPES, help="of weights and computation (default: %(default)s)")
    add(
        "--systems",
        nargs="+",
        default=list(SYSTEMS),
        choices=tuple(SYSTEMS),
        help="what to time; ratios are to the first (default: all)",
    )
    add_arguments(result, repeats=1, warm_ups=0)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, measure, print the table."""
    args = parse(parser(), arguments)
    torch.set_num_threads(args.threads)
    check(args)
    ngrams = f", no {args.no_repeat_ngram_size}-gram twice" if args.no_repeat_ngram_size else ""
    print_header(
        args,
        f"generation, {args.size} size, one document of {args.source_length} tokens, beam {args.beam}, "
        f"{args.tokens} tokens, {args.dtype}{ngrams}",
    )
    cases = [Case(name, partial(build, args)) for name, build in map(SYSTEMS.get, args.systems)]
    columns = {
        "encoder s": lambda result: f"{result.value['encoder']:.3f}",
        "decoding s": lambda result: f"{result.seconds[-1] - result.value['encoder']:.3f}",
    }
    print_table(measure(cases, args), tokens=args.source_length, columns=columns)


if __name__ == "__main__":
    main()

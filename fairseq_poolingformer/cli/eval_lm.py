"""``poolingformer eval-lm``: bits per character of a whole split; every byte is scored once, with a long context."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_poolingformer.cli.models import add_device_options, load_models
from fairseq_poolingformer.command import UsageError, output_file, run_command
from fairseq_poolingformer.options import add_shard_options, check_shard, natural, positive, shard
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file

if TYPE_CHECKING:
    from torch import nn

_EPILOG = """\
A model without memory reads overlapping sequences of --context bytes and is scored on the last --stride of each; the
first sequence is scored as a whole (Longformer, section 4.2). A model with memory reads the text in blocks: the text is
divided among --batch-size rows for each shard, and each row but the first reads --context bytes before its first scored
byte. --memory-length gives a model another memory than in training, for example Transformer-XL a longer one. Its
published evaluation is --memory-length 2100 --same-length --clamp-distances 820 (large: 3800 and 1000), on enwik8 with
--skip-newlines.

examples:
  poolingformer eval-lm data-bin/enwik8 --model run/checkpoint_best.pt --subset test --batch-size 8 --precision bf16

on two GPUs:
  for i in 0 1; do CUDA_VISIBLE_DEVICES=$i poolingformer eval-lm data-bin/enwik8 --model run/checkpoint_best.pt \\
      --num-shards 2 --shard-id $i --output shard$i.json & done; wait
  poolingformer eval-lm data-bin/enwik8 --join shard0.json shard1.json --output test.json
"""


class Stretch(NamedTuple):
    """A sequence: the model reads ``text[first:end]`` and is scored from ``scored_from`` on."""

    first: int
    scored_from: int
    end: int


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Print the result of an evaluation, or of its joined shards, and write it to the output file."""
    if (args.path is None) == (args.join is None):
        raise UsageError("give --model to evaluate, or --join to join the results of shards")
    check_shard(args)
    if args.no_memory and args.memory_length is not None:
        raise UsageError("--no-memory and --memory-length: give one of the two")
    result = join(args.join) if args.join else _evaluate(args)
    text = json.dumps(result, indent=1)
    print(text, flush=True)  # first, so that hours of work are not lost when the file cannot be written
    if args.output:
        write_lines(args.output, [text])


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer eval-lm",
        description="Bits per character of a character language model on a split, as JSON.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, help="data folder of poolingformer preprocess char_lm")
    add("--model", "--path", dest="path", metavar="MODEL", help="checkpoint of task char_lm")
    add("--join", nargs="+", type=Path, metavar="FILE", help="results of all shards, to be joined into one")
    add("--subset", default="test", help="split to evaluate (default: %(default)s)")
    text = "bytes (default: the checkpoint's --eval-context, 32256; of a model without memory that sees everything, no "
    text += "more than its --tokens-per-sample)"
    add("--context", type=positive, metavar="N", help=text)
    text = "bytes (default: the checkpoint's --eval-stride, 512, where it is no more than --context)"
    add("--stride", type=positive, metavar="N", help=text)
    text = "bytes that each layer keeps of what came before, where its windows reach so far; 0: none (default: as "
    text += "trained)"
    add("--memory-length", type=natural, metavar="M", help=text)
    text = "every byte sees --memory-length bytes, itself included; without this flag also the block's before it"
    add("--same-length", action="store_true", help=text)
    text = "sinusoidal positions: give distances beyond N the position of N (default: none)"
    add("--clamp-distances", type=int, metavar="N", help=text)
    add("--skip-newlines", action="store_true", help="leave newlines out of the text, as Transformer-XL's code does")
    add("--no-memory", action="store_true", help="evaluate a model with memory as one without")
    text = "sequences or rows at a time (default: %(default)s)"
    add("--batch-size", type=positive, default=1, metavar="N", help=text)
    add_device_options(parser)
    add("--output", type=output_file, metavar="FILE", help="also write the result here")
    add_shard_options(parser, "evaluate one N-th of the text")
    return parser


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
    model: Any
    (model,), task = load_models([args.path], args.device, args.precision, task="char_lm")
    from fairseq_poolingformer.char_lm.task import load_text
    from fairseq_poolingformer.text.byte_symbols import NEWLINE

    text = load_text(args.data, args.subset, NEWLINE if args.skip_newlines else None)
    if args.memory_length is not None:
        if not hasattr(model, "set_memory_length"):
            raise ValueError(f"--memory-length: the memory of {type(model).__name__} has a fixed length; leave it out")
        model.set_memory_length(args.memory_length)
    if args.same_length or args.clamp_distances is not None:
        if not hasattr(model, "evaluate_as_transformer_xl"):
            raise ValueError(f"--same-length and --clamp-distances are not for {type(model).__name__}; leave them out")
        model.evaluate_as_transformer_xl(same_length=args.same_length, farthest=args.clamp_distances)
    has_memory = getattr(model, "memory_length", 0) > 0 and not args.no_memory
    context = args.context or task.cfg.eval_context
    if not args.context and not has_memory and getattr(model, "reach", 0) is None:  # it sees everything
        context = min(context, task.cfg.tokens_per_sample)
    stride = args.stride or min(task.cfg.eval_stride, context)
    if has_memory:
        rows = args.batch_size * args.num_shards
        stride = max(1, -(-(len(text) - context) // rows))  # the first row scores its context as well
        stretches, block = cut(len(text), context + stride, stride), task.cfg.tokens_per_sample
    else:
        longest = model.max_positions()
        if longest is not None and longest < context:
            raise ValueError(f"--context {context}, but the model takes {longest} bytes at a time")
        stretches, block = cut(len(text), context, stride), context
    part = [stretches[number] for number in shard(args, len(stretches))]
    spans = getattr(getattr(model, "decoder", None), "spans", None)
    nll = score(model, text, part, batch_size=args.batch_size, block=block, device=args.device)
    scored = sum(stretch.end - stretch.scored_from for stretch in part)
    return {
        "checkpoint": args.path,
        "subset": args.subset,
        "bytes": len(text),
        "memory": has_memory,
        "memory_length": model.memory_length if has_memory else 0,
        "context": context,
        "stride": None if has_memory else stride,
        "same_length": args.same_length,
        "clamp_distances": args.clamp_distances,
        "newlines": not args.skip_newlines,
        "precision": args.precision,
        "num_shards": args.num_shards,
        "shards": [args.shard_id],
        **({} if spans is None else {"average_span": float(spans().detach().mean()), "span_ramp": spans.ramp}),
        **_totals(nll, scored),
    }


def cut(size: int, context: int, stride: int) -> list[Stretch]:
    """Cut a text into equally long sequences, ``stride`` bytes apart, whose new bytes are scored: every byte once."""
    if stride > context:
        raise ValueError(f"--stride {stride} is longer than --context {context}: some bytes would not be scored")
    stretches = [Stretch(0, 0, min(context, size))]
    while stretches[-1].end < size:
        scored_from = stretches[-1].end
        end = min(scored_from + stride, size)
        stretches.append(Stretch(end - context, scored_from, end))
    return stretches


def score(
    model: nn.Module, text: Any, stretches: Sequence[Stretch], *, batch_size: int, block: int, device: str
) -> float:
    """Sum the cross entropy of the scored bytes, in nats."""
    import torch
    import torch.nn.functional as F
    from tqdm import tqdm

    total = torch.zeros((), dtype=torch.float64)
    scored = sum(stretch.end - stretch.scored_from for stretch in stretches)
    with torch.inference_mode(), tqdm(total=scored, unit="B", unit_scale=True, disable=None) as progress:
        for number in range(0, len(stretches), batch_size):
            batch = stretches[number : number + batch_size]
            first = torch.tensor([stretch.first for stretch in batch])[:, None]
            scored_from = torch.tensor([stretch.scored_from for stretch in batch])[:, None]
            memory: dict[str, Any] = {}
            for offset in range(0, batch[0].end - batch[0].first, block):
                rows = [text.read(s.first + offset, min(s.first + offset + block, s.end)) for s in batch]
                inputs, targets = (torch.stack(column).to(device) for column in zip(*rows, strict=True))
                logits, extra = model(inputs, **memory)
                memory = {"memory": extra["memory"]} if extra.get("memory") is not None else {}
                wanted = first + offset + torch.arange(inputs.size(1)) >= scored_from
                if wanted.any():
                    chosen = wanted.to(device)
                    nll = F.cross_entropy(logits[chosen].float(), targets[chosen], reduction="none")
                    total += nll.double().sum().cpu()
                    progress.update(int(wanted.sum()))
    return float(total)


def join(files: Sequence[Path]) -> dict[str, Any]:
    """Join the results of all shards."""
    results = [read_json_file(path) for path in files]
    for path, result in zip(files, results, strict=True):
        if missing := {"num_shards", "shards", "nll", "scored"} - result.keys():
            raise ValueError(f"{path}: no result of poolingformer eval-lm: it lacks {', '.join(sorted(missing))}")
    joined = {key: results[0][key] for key in results[0] if key not in ("shards", "nll", "scored", "bpc")}
    for path, result in zip(files, results, strict=True):
        different = [key for key in joined if result.get(key) != joined[key]]
        if different:
            raise ValueError(f"{path}: the result of another evaluation than {files[0]}; {', '.join(different)} differ")
    shards = sorted(shard for result in results for shard in result["shards"])
    if shards != list(range(joined["num_shards"])):
        raise ValueError(f"give each of the {joined['num_shards']} shards once; got shards {shards}")
    totals = _totals(sum(result["nll"] for result in results), sum(result["scored"] for result in results))
    return joined | {"shards": shards} | totals


def _totals(nll: float, scored: int) -> dict[str, Any]:
    return {"scored": scored, "nll": nll, "bpc": nll / math.log(2) / scored if scored else None}

"""CPU seconds per 1,000 tokens of training, of several systems in turn, for blocks of several lengths.

    python run_scripts/evidence/cost.py OUT.json --contexts 1024 4096 --system NAME "FLAG …" … -- DATA FLAG…

The flags after -- are those of fairseq-train that all systems share. A step is a forward and a backward pass over
random tokens in bfloat16, without the optimizer, which costs all the same. Each round measures every system once; the
least of the rounds counts, since other work on the machine only adds. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

import torch
from fairseq import options, tasks
from torch import nn

from fairseq_poolingformer.text.atomic_write import write_lines


def seconds(model: nn.Module, tokens: torch.Tensor, masked: torch.Tensor) -> float:
    """CPU seconds of a training step per 1,000 tokens."""
    model.zero_grad()
    began = time.process_time()
    logits, _ = model(tokens, masked_tokens=masked)
    nn.functional.cross_entropy(logits.float(), tokens[masked]).backward()
    return (time.process_time() - began) * 1000 / tokens.numel()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, metavar="OUT.json")
    parser.add_argument("--contexts", type=int, nargs="+", required=True, metavar="N")
    parser.add_argument("--system", nargs=2, action="append", required=True, metavar=("NAME", "FLAGS"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="+", metavar="FLAG", help="after --")
    given = parser.parse_args()
    models = {}
    for name, flags in given.system:
        args = options.parse_args_and_arch(options.get_training_parser(), [*given.flags, *shlex.split(flags)])
        task = tasks.setup_task(args)
        models[name] = task.build_model(args).bfloat16().train()
    generator = torch.Generator().manual_seed(1)
    found: dict[str, dict[int, float]] = {name: {} for name in models}
    for context in given.contexts:
        tokens = torch.randint(10, len(task.dictionary) - 1, (max(1, 8192 // context), context), generator=generator)
        masked = torch.rand(tokens.shape, generator=generator) < 0.15
        for _ in range(given.rounds):
            for name, model in models.items():
                found[name][context] = min(seconds(model, tokens, masked), found[name].get(context, float("inf")))
        print(context, " ".join(f"{name} {found[name][context]:.3f}" for name in models), flush=True)
    write_lines(given.output, [json.dumps(found, indent=1)])


if __name__ == "__main__":
    main()

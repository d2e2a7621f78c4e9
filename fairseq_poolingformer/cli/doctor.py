"""``poolingformer doctor``: a report on an installation and its backends, in Markdown, to paste into an issue."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fairseq_poolingformer.cli.main import versions
from fairseq_poolingformer.cli.models import add_device
from fairseq_poolingformer.command import load_fairseq, run_command

if TYPE_CHECKING:
    import torch

    from fairseq_poolingformer.attention.call import Call

HEADS, LENGTH, HEAD_DIM = 2, 64, 64


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer doctor",
        description="Report versions, GPUs, and the backend of each kind of attention, on GPUs after its self-check.",
    )
    add_device(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the report, line by line."""
    print("# poolingformer doctor\n")
    for item in (*versions().splitlines(), *gpus(), fairseq()):
        print(f"- {item}")
    print(f"\n## Backends on {args.device}, in training\n", flush=True)
    for line in backends(args.device):
        print(line, flush=True)


def gpus() -> Iterator[str]:
    """Every GPU, or that torch sees none."""
    import torch

    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        yield f"cuda:{number}: {gpu.name}, compute capability {gpu.major}.{gpu.minor}"
    if not torch.cuda.device_count():
        yield f"no GPU (torch is built for {torch.version.cuda or torch.version.hip or 'CPUs'})"


def backends(device: str) -> Iterator[str]:
    """Which backend each kind of call takes, and why not the faster ones; on GPUs the self-checks run for it."""
    from fairseq_poolingformer.attention.backends.choice import fastest_backend
    from fairseq_poolingformer.attention.call import DTYPES

    refusals: dict[str, list[str]] = {}
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    yield from (f"|  | {' | '.join(names)} |", "|" + " --- |" * (len(names) + 1))
    kinds = [calls(device, dtype) for dtype in DTYPES]
    for kind in kinds[0]:
        chosen, reasons = zip(*(fastest_backend(of_dtype[kind]) for of_dtype in kinds), strict=True)
        yield f"| {kind} | {' | '.join(chosen)} |"
        for name, refused in zip(names, reasons, strict=True):
            for reason in refused:
                refusals.setdefault(reason, []).append(f"{kind} {name}")
    yield ""
    for reason, refused in refusals.items():
        yield f"- not {reason} ({', '.join(refused) if len(refused) <= 3 else f'{len(refused)} calls'})"


def calls(device: str, dtype: torch.dtype) -> dict[str, Call]:
    """A small call of each kind, with tensors that need gradients."""
    import torch

    from fairseq_poolingformer.attention import DisentangledPosition, Pooling, RelativePositionBias, Window
    from fairseq_poolingformer.attention.call import Call

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype, requires_grad=True)

    pools, marked = Pooling(5, 4), torch.zeros(1, LENGTH, dtype=torch.bool, device=device)
    tables = (zeros(HEADS, 16, HEAD_DIM), zeros(HEADS, 16, HEAD_DIM))
    kinds: dict[str, dict[str, Any]] = {
        "level one": {},
        "level one, global tokens": {"global_mask": marked.clone().index_fill(1, marked.new_zeros(1).long(), True)},
        "level one, padding": {"key_padding_mask": marked},
        "level one, dropout": {"dropout_p": 0.1},
        "level one, dilated": {"window": Window(8, 8, 2)},
        "level one, relative bias": {"score_terms": [RelativePositionBias(zeros(HEADS, 17))]},
        "level one, disentangled": {"score_terms": [DisentangledPosition(*tables)]},
        "level two": {"pooling": pools},
        "level two, dropout": {"pooling": pools, "dropout_p": 0.1},
        "level two, query-aligned": {"pooling": Pooling(5, 4, "query")},
        "full attention": {"window": Window.unlimited()},
    }
    made = {}
    for kind, arguments in kinds.items():
        keys = arguments["pooling"].num_pools(LENGTH) if "pooling" in arguments else LENGTH
        tensors = (zeros(1, HEADS, n, HEAD_DIM) for n in (LENGTH, keys, keys))
        made[kind] = Call.of(*tensors, **{"window": Window(8), **arguments})
    return made


def fairseq() -> str:
    """Whether the plugin fits the fairseq that is installed."""
    if find_spec("fairseq") is None:
        return "fairseq is not installed: what trains and generates needs it, the attention and transformers do not"
    try:
        load_fairseq()
    except (ImportError, AttributeError) as error:
        return f"the plugin does not fit this fairseq: {error}"
    return "the plugin fits this fairseq"

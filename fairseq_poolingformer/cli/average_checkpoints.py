"""``poolingformer-average-checkpoints``: the mean of several checkpoints' parameters.

fairseq's script ``average_checkpoints.py`` is not part of its installed package; this command takes the same options.
"""

import argparse
import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader.checkpoints import OPTIMIZER, load
from fairseq_poolingformer.command import UsageError, load_fairseq, natural, positive, run_command
from fairseq_poolingformer.patches.long_jobs import companions
from fairseq_poolingformer.patches.long_jobs.nonfinite import require_finite
from fairseq_poolingformer.text.atomic_write import atomic_write, require_writable

_EPILOG = """\
examples:
  poolingformer-average-checkpoints --inputs a.pt b.pt --output mean.pt
  poolingformer-average-checkpoints --inputs run --num-epoch-checkpoints 5 --output mean.pt
"""
EPOCH_CHECKPOINT = re.compile(r"checkpoint(\d+)\.pt")
UPDATE_CHECKPOINT = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def last_checkpoints(folder: Path, name: re.Pattern, count: int, upper_bound: int | None = None) -> list[Path]:
    """Return the last checkpoints of a folder, the newest first."""
    if not folder.is_dir():
        raise ValueError(f"--inputs {folder} is no folder; with a number of checkpoints, give the save directory")
    found = [(int(match.group(1)), path) for path in folder.iterdir() if (match := name.fullmatch(path.name))]
    found = sorted((entry for entry in found if upper_bound is None or entry[0] <= upper_bound), reverse=True)
    if count > len(found):
        bound = "" if upper_bound is None else f" up to {upper_bound}"
        raise ValueError(f"{count} checkpoints asked for, but {folder} has {len(found)} named {name.pattern}{bound}")
    return [path for _, path in found[:count]]


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the first checkpoint with its parameters replaced by the mean over all of them.

    Sums are taken in float64. Half-precision parameters come out as float32, as with fairseq's script. Integer and
    boolean buffers have no mean: the first checkpoint's are taken. Parameters that are one tensor in every checkpoint
    (tied embeddings) are one tensor in the result.
    """
    first: dict[str, Any] = {}
    sums: OrderedDict[str, torch.Tensor] = OrderedDict()
    identities: dict[str, list] = {}
    for path in paths:
        state = load(path, (OPTIMIZER,) if first else ())
        model = state.pop("model")
        require_finite(path, model)
        if not first:
            first = state
            sums = OrderedDict((key, _summand(tensor).clone()) for key, tensor in model.items())
            dtypes = {key: tensor.dtype for key, tensor in model.items()}
        else:
            _check_same_parameters(path, model, sums)
            for key, total in sums.items():
                if total.is_floating_point():
                    total += _summand(model[key])
        for key, tensor in model.items():
            identities.setdefault(key, []).append((tensor.data_ptr(), tensor.shape, tensor.stride()))
    averaged: OrderedDict[str, torch.Tensor] = OrderedDict()
    one_tensor: dict[tuple, torch.Tensor] = {}
    for key, total in sums.items():
        identity = tuple(identities[key])
        if identity not in one_tensor:
            one_tensor[identity] = _mean(total, len(paths), dtypes[key])
        averaged[key] = one_tensor[identity]
    first["model"] = averaged
    return first


def _summand(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _mean(total: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    if not total.is_floating_point():
        return total
    return (total / count).to(torch.promote_types(dtype, torch.float32))


def _check_same_parameters(path: Path, model: dict, sums: dict) -> None:
    differing = sorted(model.keys() ^ sums.keys())
    differing += [key for key in model.keys() & sums.keys() if model[key].shape != sums[key].shape]
    if differing:
        shown = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
        raise ValueError(
            f"{path} has other parameters than the first checkpoint: {shown}. Average one model at a time."
        )


def save(state: dict[str, Any], output: Path) -> None:
    """Write a checkpoint beside its final name, and rename it when it is whole."""
    with atomic_write(output) as unfinished:
        torch.save(state, unfinished)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with the options of fairseq's script."""
    parser = argparse.ArgumentParser(
        prog="poolingformer-average-checkpoints",
        description="Average the parameters of checkpoints into a new checkpoint.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--inputs", required=True, nargs="+", type=Path, help="checkpoint files, or one save directory")
    parser.add_argument("--output", required=True, metavar="FILE", type=Path, help="the checkpoint to write")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--num-epoch-checkpoints", type=positive, metavar="N", help="average the last N checkpointE.pt of the folder"
    )
    number.add_argument(
        "--num-update-checkpoints",
        type=positive,
        metavar="N",
        help="average the last N checkpoint_E_U.pt of the folder",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=natural,
        metavar="N",
        help="with one of the above, take no epoch or update after N",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write the average of the checkpoints."""
    by_update = args.num_update_checkpoints is not None
    count = args.num_update_checkpoints if by_update else args.num_epoch_checkpoints
    if count is None and args.checkpoint_upper_bound is not None:
        raise UsageError("--checkpoint-upper-bound needs --num-epoch-checkpoints or --num-update-checkpoints")
    if count is not None and len(args.inputs) != 1:
        raise UsageError("with a number of checkpoints, --inputs is one folder")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    require_writable(args.output)
    load_fairseq()
    paths = args.inputs
    if count is not None:
        name = UPDATE_CHECKPOINT if by_update else EPOCH_CHECKPOINT
        paths = last_checkpoints(args.inputs[0], name, count, args.checkpoint_upper_bound)
    save(average_checkpoints(paths), args.output)
    companions.copy(paths[0].parent, args.output.parent)
    print(f"averaged {', '.join(str(path) for path in paths)} into {args.output}")


if __name__ == "__main__":
    sys.exit(main())

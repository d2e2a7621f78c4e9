"""``poolingformer average-checkpoints``: the mean of several checkpoints' parameters.

fairseq's script ``average_checkpoints.py`` is not part of its installed package; this command takes the same options.
"""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import UsageError, check_output, load_fairseq, run_command
from fairseq_poolingformer.options import natural, positive
from fairseq_poolingformer.text.atomic_write import atomic_write


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the first checkpoint with the mean of each parameter, summed in float64; integers are the first one's."""
    import torch

    from fairseq_poolingformer.checkpoints import OPTIMIZER, load
    from fairseq_poolingformer.patches.nonfinite import require_finite

    # tensors that the first one shares (tied embeddings) stay one where their means are equal
    first = load(paths[0])
    model = first["model"]
    require_finite(paths[0], model)
    means = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in model.items()}
    for path in paths[1:]:
        state = load(path, (OPTIMIZER,))
        require_same_meaning(paths[0], first, path, state)
        other = state["model"]
        require_finite(path, other)
        same = {key for key in means.keys() & other.keys() if means[key].shape == other[key].shape}
        if differing := sorted((means.keys() | other.keys()) - same):
            shown = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
            raise ValueError(
                f"{path} has other parameters than the first checkpoint: {shown}. Average one model at a time."
            )
        for key, total in means.items():
            means[key] = total + other[key].double() if total.is_floating_point() else total
    shared: dict[tuple, str] = {}
    for key, tensor in model.items():
        if tensor.is_floating_point():
            means[key] = (means[key] / len(paths)).to(torch.promote_types(tensor.dtype, torch.float32))
        former = shared.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), key)
        if torch.equal(means[former], means[key]):
            means[key] = means[former]
    return first | {"model": means}


def require_same_meaning(first: Path, before: Mapping[str, Any], path: Path, state: Mapping[str, Any]) -> None:
    """Raise ValueError where parameters of one shape mean something else: other words, labels or windows."""
    from fairseq_poolingformer.patches import resuming
    from fairseq_poolingformer.text.dictionary import DIGESTS

    ours, theirs = (checkpoint.get("task_state") or {} for checkpoint in (before, state))
    others = [name for name in (DIGESTS, "labels", "problem_type") if ours.get(name) != theirs.get(name)]
    groups = (checkpoint.get("args") or (checkpoint.get("cfg") or {}).get("model") for checkpoint in (before, state))
    former, latter = map(resuming.options_of, groups)
    changes = resuming.changes(former, latter, resuming.MEANING | resuming.VISIBILITY)
    flags = [f"--{name.replace('_', '-')} {now} ({was})" for name, (was, now) in changes.items()]
    if others or flags:
        raise ValueError(
            f"{path} has other {', '.join([*others, *sorted(flags)])} than {first}: the mean of parameters that mean "
            "different things is none. Average the checkpoints of one training"
        )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with the options of fairseq's script."""
    parser = argparse.ArgumentParser(
        prog="poolingformer average-checkpoints",
        description="Average the parameters of checkpoints, given or the last ones of a folder, into a new checkpoint.",
    )
    add = parser.add_argument
    add("--inputs", required=True, nargs="+", type=Path, help="checkpoint files, or one save directory")
    add("--output", required=True, metavar="FILE", type=Path, help="the checkpoint to write")
    last = parser.add_mutually_exclusive_group()
    for unit, name in (("epoch", "checkpointE.pt"), ("update", "checkpoint_E_U.pt")):
        text = f"average the last N {name} of the folder"
        last.add_argument(f"--num-{unit}-checkpoints", type=positive, metavar="N", help=text)
    text = "of these, take no epoch or update after N"
    add("--checkpoint-upper-bound", type=natural, default=math.inf, metavar="N", help=text)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write the average of the checkpoints."""
    paths, bound = args.inputs, args.checkpoint_upper_bound
    count = args.num_epoch_checkpoints or args.num_update_checkpoints
    if (count and len(paths) != 1) or (not count and (bound < math.inf or any(path.is_dir() for path in paths))):
        raise UsageError("give checkpoints, or one folder with a number of its last ones, perhaps up to a bound")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    load_fairseq()
    import torch

    from fairseq_poolingformer.patches import saving

    if count:
        folder, name = paths[0], r"checkpoint_\d+_(\d+)\.pt" if args.num_update_checkpoints else r"checkpoint(\d+)\.pt"
        if not folder.is_dir():
            raise ValueError(f"--inputs {folder} is no folder; with a number of checkpoints, give the save directory")
        path_of = {int(match[1]): path for path in folder.iterdir() if (match := re.fullmatch(name, path.name))}
        chosen = sorted(number for number in path_of if number <= bound)[-count:]
        if len(chosen) < count:
            up_to = f" up to {bound}" if bound < math.inf else ""
            raise ValueError(f"{count} checkpoints asked for, but {folder} has {len(chosen)} named {name}{up_to}")
        paths = [path_of[number] for number in reversed(chosen)]
    check_output("--output", args.output, paths)
    averaged = average_checkpoints(paths)
    with atomic_write(args.output) as unfinished:
        torch.save(averaged, unfinished)
    saving.copy_data_files(paths[0].parent, args.output.parent)
    print(f"averaged {', '.join(str(path) for path in paths)} into {args.output}")

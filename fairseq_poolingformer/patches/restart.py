"""Options of a start that act once in a save directory: ``--restore-file`` and ``--reset-…``."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_poolingformer.checkpoints import CheckpointError, read
from fairseq_poolingformer.patches import resuming, saving
from fairseq_poolingformer.patching import set_within

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file
RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")


def use_options_once(original: Callable, cfg: Any, trainer: Any, **named: Any) -> Any:
    """Load the last checkpoint where ``--restore-file`` and ``--reset-…`` are those that it was begun with."""
    # fairseq obeys them at every start: the command that is to continue begins anew and overwrites checkpoint_last.pt
    is_asked = cfg.restore_file != LAST or any(cfg[name] for name in RESETS)
    if not is_asked or cfg.save_dir is None or not resuming.is_ours(trainer.task):
        return original(cfg, trainer, **named)
    unused = by_the_first_process(trainer, partial(used_options, cfg, trainer.checkpoint_suffix))
    with contextlib.ExitStack() as stack:  # what is saved later keeps the options
        for name in unused:
            stack.enter_context(set_within(cfg, name, LAST if name == "restore_file" else False))
        return original(cfg, trainer, **named)


def by_the_first_process(trainer: Any, decide: Callable[[], list[str]]) -> list[str]:
    """The decision of the first process, or the error that it raises, in all processes."""
    if trainer.data_parallel_world_size == 1:
        return decide()
    from fairseq.distributed import utils

    decision: dict[str, Any] = {}
    if trainer.data_parallel_rank == 0:
        try:
            decision = {"names": decide()}
        except CheckpointError as error:
            decision = {"error": str(error)}
    group = trainer.data_parallel_process_group
    decision = utils.broadcast_object(decision, src_rank=0, group=group, dist_device=trainer.device)
    if "error" in decision:
        raise CheckpointError(decision["error"])
    return decision["names"]


def used_options(cfg: Any, suffix: str) -> list[str]:
    """The options that the folder's last checkpoint records as given; raise CheckpointError for a step back."""
    last = Path(cfg.save_dir, LAST.replace(".pt", f"{suffix}.pt"))
    if not last.is_file():
        return []
    state = next(filter(None, map(_entries, [last, *saving._others(last)])), None)
    if state is None:  # the default finds out what is damaged, and says what to do
        return ["restore_file", *RESETS]
    recorded = resuming.options_of(resuming.options_of(state.get("cfg")).get("checkpoint"))
    file, former, updates = cfg.restore_file, recorded.get("restore_file"), _num_updates(state)
    start = Path(file.replace(".pt", f"{suffix}.pt"))
    is_within = file == LAST or start.resolve().parent == last.resolve().parent
    if file != LAST and (former is None or Path(former).resolve() != Path(file).resolve()):
        entries = None if is_within else _entries(start)  # going back within the folder is asked for by name
        if entries is not None and _num_updates(entries) < updates:
            raise CheckpointError(
                f"--restore-file {file} has {_num_updates(entries)} updates, and {last}, which it would replace, has "
                f"{updates}: leave the option out to continue {last}, or give another --save-dir"
            )
        return []
    used = [*["restore_file"] * (file != LAST), *(name for name in RESETS if cfg[name] and recorded.get(name))]
    if used:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in used)
        remedy = "save a checkpoint without them first" if is_within else f"move {last} away"
        logger.warning(
            f"{last} was begun with {flags}: it continues after {updates} updates without them. To use them again, "
            f"{remedy}"
        )
    return used


def _entries(path: Path) -> Mapping[str, Any] | None:
    """The entries of a checkpoint without its tensors; None where they cannot be read."""
    try:
        state = read(path, has_tensors=False)
    except (CheckpointError, OSError):
        return None
    return state if isinstance(state, Mapping) else None


def _num_updates(state: Mapping[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)

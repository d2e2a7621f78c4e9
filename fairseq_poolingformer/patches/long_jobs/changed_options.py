"""A training and the checkpoint that it takes: its dictionary and what its parameters mean must be the same."""

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairseq_poolingformer.checkpoints import CheckpointError, MissingCheckpointError
from fairseq_poolingformer.patches.untrusted_files import explained
from fairseq_poolingformer.patching import set_within
from fairseq_poolingformer.settings import layer_numbers, settings_with

# Options of a model whose parameters keep their shapes, or are quietly made anew, when the options change, and then
# compute something else than they were trained for.
MEANING = {
    *("encoder_attention_heads", "decoder_attention_heads", "activation_fn", "no_scale_embedding", "scale_embedding"),
    *("encoder_normalize_before", "decoder_normalize_before"),
    *("layernorm_embedding", "dilated_heads", "dilation", "span_ramp", "shared_span"),
    *settings_with("is_meaning"),
}
EACH_LAYER = {*settings_with("each_layer"), "dilation"}  # one value, or one a layer


def refuse_missing_or_unfit_checkpoint(
    original: Callable, self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """Stop when the checkpoint that was asked for is not there or does not fit the training.

    fairseq logs "No existing checkpoint found" and trains from random weights, with exit status 0, whatever was given
    as ``--restore-file``, ``--continue-once`` or (a folder, say) ``--finetune-from-model``. Only fairseq's default, the
    ``checkpoint_last.pt`` of the save directory, may be missing: that is the first launch.
    """
    from fairseq.file_io import PathManager

    cfg = self.cfg.checkpoint
    default = os.path.join(cfg.save_dir, f"checkpoint_last{self.checkpoint_suffix}.pt")
    asked_for = cfg.restore_file != "checkpoint_last.pt" or filename != default
    if asked_for and not PathManager.isfile(filename):
        raise MissingCheckpointError(
            f"the checkpoint to start from, {filename}, is not there or not a file. Correct --restore-file (or "
            "--finetune-from-model); leave it out to resume from the save directory, or to start afresh when that "
            "has no checkpoint_last.pt."
        )
    if not PathManager.isfile(filename):
        return original(self, filename, reset_optimizer, *args, **kwargs)
    with explained(filename), checked_states(self, anew=reset_optimizer):
        return original(self, filename, reset_optimizer, *args, **kwargs)


@contextlib.contextmanager
def checked_states(trainer: Any, anew: bool) -> Iterator[None]:
    """Within the block, check every checkpoint that fairseq reads for a trainer, before the trainer takes it."""
    from fairseq import checkpoint_utils

    original: Callable = checkpoint_utils.load_checkpoint_to_cpu

    def load_checkpoint_to_cpu(path: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        state = original(path, *arguments, **named)
        check(path, state, trainer, anew)
        return state

    with set_within(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
        yield


def check(path: str, state: Mapping[str, Any], trainer: Any, anew: bool) -> None:
    """Compare a checkpoint with the training that takes it."""
    check_dictionaries = getattr(trainer.task, "check_dictionaries", None)
    if check_dictionaries is not None:
        try:
            check_dictionaries(state.get("task_state") or {})
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
    before, now = state.get("cfg"), trainer.cfg
    if not before:
        return
    kinds = _kind_of_model(before), _kind_of_model(now)
    if None not in kinds and kinds[0] != kinds[1]:
        raise CheckpointError(f"{path} holds {kinds[0]}, and --arch is {kinds[1]}: give one of the same kind")
    refused = {} if anew else changes(_options(before.get("model")), _options(now.get("model")))
    if refused:
        raise CheckpointError(
            f"{path} was trained with {_listed(refused)}: with other values its parameters mean something else. Give "
            "the former values, or begin a new training with these parameters: --finetune-from-model, and another "
            "--save-dir"
        )


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The options of :data:`MEANING` that both have, with other values: name -> (value before, value now)."""
    both = [name for name in MEANING if None not in (before.get(name), now.get(name)) and before[name] != now[name]]
    pairs = {name: (str(before[name]), str(now[name])) for name in both}
    return {name: pair for name, pair in pairs.items() if _value(name, pair[0]) != _value(name, pair[1])}


def _value(name: str, text: str) -> Any:
    """The value of an option's text: ``6-8`` and ``6,7,8`` are the same layers, ``4`` and ``4,4`` the same windows."""
    if name == "pooled_layers":
        return layer_numbers(text)
    values = [value.strip() for value in text.split(",")] if name in EACH_LAYER else [text]
    return values[:1] if len(set(values)) == 1 else values


def _kind_of_model(cfg: Mapping[str, Any]) -> str | None:
    """What a configuration's model is made of; None where fairseq knows no such model."""
    from fairseq import models

    options = _options(cfg.get("model"))
    registries = {**models.MODEL_REGISTRY, **models.ARCH_MODEL_REGISTRY}
    found = next((registries[name] for name in (options.get("arch"), options.get("_name")) if name in registries), None)
    kinds = {
        models.FairseqEncoderDecoderModel: "an encoder with a decoder",
        models.FairseqEncoderModel: "an encoder alone",
        models.FairseqLanguageModel: "a decoder alone",
    }
    return next((text for kind, text in kinds.items() if found is not None and issubclass(found, kind)), None)


def _options(group: Any) -> dict[str, Any]:
    if isinstance(group, Namespace):
        return vars(group)
    from omegaconf import DictConfig, OmegaConf

    if isinstance(group, DictConfig):
        return OmegaConf.to_container(group, resolve=True)
    return dict(group) if isinstance(group, Mapping) else {}


def _listed(changed: Mapping[str, tuple[str, str]]) -> str:
    texts = [f"--{name.replace('_', '-')} {before} (now {now})" for name, (before, now) in sorted(changed.items())]
    return ", ".join(texts)

"""The code that Poolingformer-BART and Poolingformer-RoBERTa share: architectures, and loading checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairseq import hub_utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model_architecture
from omegaconf import OmegaConf, open_dict
from torch import Tensor

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import checked_states, explained
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.models.hub import PoolingformerHubInterface, PoolingformerRobertaHubInterface
from fairseq_poolingformer.settings import TwoLevels, set_defaults
from fairseq_poolingformer.weights.loading import adapt_state_dict
from fairseq_poolingformer.weights.special_tokens import NAMES, decode_names, match_special_tokens, rows_by_symbol

Architecture = tuple[Callable[[argparse.Namespace], None], Mapping[str, Any]]


def set_architecture(extended: Callable[[argparse.Namespace], None], settings: Mapping[str, Any], args: Any) -> None:
    """Give ``args`` the settings that it lacks: those given, the papers' for the attention, fairseq's for the rest."""
    set_defaults(args, **settings)
    set_defaults(args, **vars(TwoLevels.of(args)))
    extended(args)


def register_architectures(model: str, architectures: Mapping[str, Architecture]) -> None:
    """Register a table of ``--arch`` -> the first two arguments of :func:`set_architecture`."""
    for name, (extended, settings) in architectures.items():
        register_model_architecture(model, name)(partial(set_architecture, extended, settings))


def as_namespace(model: type, cfg: Any) -> Any:
    """A configuration of ``fairseq-hydra-train``, which has the flags' names, as what the same flags give."""
    for side in ("encoder", "decoder"):
        if getattr(cfg, f"{side}_layers_to_keep", None):
            raise UsageError(
                f"--{side}-layers-to-keep: these models keep all layers, which --pooled-layers and --window-size "
                "number; leave it out"
            )
    # TransformerConfig.from_namespace would leave out the settings of the two levels
    if not OmegaConf.is_config(cfg):
        return cfg
    options = OmegaConf.to_container(cfg, resolve=True)
    with open_dict(cfg):
        cfg.pop("compile_layers", None)  # which checkpoints do not have
    parser = argparse.ArgumentParser(add_help=False)
    model.add_args(parser)
    settings = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[options["_name"]](settings)
    known = {*(action.dest for action in parser._actions), *vars(settings), "_name", "arch"}
    if unknown := sorted(options.keys() - known):
        raise UsageError(f"{options['_name']} has no setting {', '.join(unknown)}: give the names of its flags")
    return argparse.Namespace(**options)


class LoadsCheckpoints:
    """Loads a :class:`TwoLevels` model from fairseq's checkpoints; ``dictionary_file`` has the encoder's symbols."""

    dictionary_file: str

    def __init__(self, args: Any, *parts: Any) -> None:
        super().__init__(args, *parts)
        vars(args).pop("compile_layers", None)  # which checkpoints do not have

    @classmethod
    def hub_interface(
        cls, loaded: Mapping[str, Any], data_folder: Path
    ) -> PoolingformerHubInterface | PoolingformerRobertaHubInterface:
        """Wrap fairseq's ``args``, ``task`` and ``models`` for use in Python."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(
        cls, model_name_or_path: str, checkpoint_file: str = "model.pt", data_name_or_path: str = ".", **kwargs: Any
    ) -> PoolingformerHubInterface | PoolingformerRobertaHubInterface:
        """Load a model for use in Python."""
        fairseq_poolingformer.register()
        if not Path(model_name_or_path).is_dir():  # of an archive, fairseq would write each entry where it says
            raise FileNotFoundError(
                f"{model_name_or_path}: no such folder. A model is a folder: unpack an archive into a new one "
                "(mkdir NEW && tar -xzf ARCHIVE -C NEW), and give the folder that has the checkpoint"
            )
        relative = data_name_or_path.startswith(".")
        folder = Path(model_name_or_path, data_name_or_path) if relative else Path(data_name_or_path)
        if not (folder / cls.dictionary_file).is_file():
            raise FileNotFoundError(
                f"{folder} has no {cls.dictionary_file}: give the checkpoint's data folder as data_name_or_path"
            )
        symbols = Dictionary.load(str(folder / cls.dictionary_file)).symbols
        with checked_states(lambda path, state: rows_by_symbol(Path(path), state, symbols)):
            loaded = hub_utils.from_pretrained(
                model_name_or_path, checkpoint_file, data_name_or_path, load_checkpoint_heads=True, **kwargs
            )
        with explained(str(Path(model_name_or_path, checkpoint_file))):
            return cls.hub_interface(loaded, folder)

    def take_rows(self, path: str, checkpoint: Mapping[str, Any]) -> None:
        """Match a checkpoint with the model's dictionary; see :func:`~.weights.special_tokens.rows_by_symbol`."""
        marks = decode_names(getattr(self, NAMES)) if hasattr(self, NAMES) else ()
        symbols = [symbol for symbol in self.encoder.dictionary.symbols if symbol not in marks]
        rows_by_symbol(Path(path), checkpoint, symbols)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Adapt fairseq's own and older checkpoints; see :func:`~.weights.loading.adapt_state_dict`."""
        super().upgrade_state_dict_named(state_dict, name)
        if name == "":
            settings = TwoLevels.of(self.args)
            start = {name: getattr(settings, name) for name in ("pooled_init", "position_init")}
            target = self.state_dict()
            match_special_tokens(target, state_dict)
            adapt_state_dict(target, state_dict, self.encoder.dictionary.pad() + 1, **start)

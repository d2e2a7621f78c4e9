"""The base of tasks over data folders with one dictionary."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from omegaconf import II, MISSING

from fairseq_poolingformer.tasks.shared.data_checks import CheckedConfig, CheckedTask
from fairseq_poolingformer.text.data_folder import DataFolder

logger = logging.getLogger(__name__)


@dataclass
class OneDictionaryConfig(CheckedConfig):
    data: str = field(
        default=MISSING,
        metadata={"help": "data folder; of several, separated by colons, each epoch trains on the next one"},
    )
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")


class OneDictionaryTask(CheckedTask):
    """A task whose data folders have one dictionary, ``dict.txt``, and which has a loss of its own.

    Args:
        cfg: the task's options.
        dictionary: of its inputs and targets.
    """

    def __init__(self, cfg, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary

    @classmethod
    def setup_task(cls, cfg, **kwargs: Any) -> "OneDictionaryTask":
        """The task with its first data folder's dictionary.

        Raises:
            FileNotFoundError: the folder has no ``dict.txt``.
        """
        path = DataFolder(Path(utils.split_paths(cfg.data)[0]), cls.layout).dictionary()
        dictionary = Dictionary.load(str(path))
        logger.info("dictionary: %d symbols", len(dictionary))
        symbols = list(dictionary.symbols)  # tasks add further ones
        task = cls(cfg, dictionary)
        task.remember({path.name: symbols})
        return task

    @property
    def source_dictionary(self) -> Dictionary:
        """The dictionary of the inputs."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The same."""
        return self.dictionary


def check_encoder(model: BaseFairseqModel, task: str, max_positions: int) -> None:
    """Refuse a model that takes no head of a task, or fewer tokens than the task's segments have.

    Raises:
        ValueError: the model does not fit.
    """
    if not hasattr(model, "register_head"):
        raise ValueError(
            f"--task {task} needs an encoder such as --arch poolingformer_roberta_base, "
            f"but {type(model).__name__} is of another kind"
        )
    if model.max_positions() < max_positions:
        raise ValueError(f"--max-positions {max_positions}, but the model takes {model.max_positions()} tokens")

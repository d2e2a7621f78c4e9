"""The base of tasks over data folders with one dictionary."""

import logging
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel

from fairseq_poolingformer.tasks.checked import CheckedTask
from fairseq_poolingformer.text.data_folder import DataFolder

logger = logging.getLogger(__name__)


class OneDictionaryTask(CheckedTask):
    """A task whose data folders have one dictionary, ``dict.txt``; ``cfg`` has ``data`` and ``train_subset``.

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

    @property
    def data_folder(self) -> Path:
        """The first data folder."""
        return self.folder(split="", epoch=1)

    def folder(self, split: str, epoch: int) -> Path:
        """The data folder of a split; of several folders, each epoch trains on the next one."""
        paths = utils.split_paths(self.cfg.data)
        return Path(paths[(epoch - 1) % len(paths)] if split == self.cfg.train_subset else paths[0])


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

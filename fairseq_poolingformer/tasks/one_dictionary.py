"""The base of tasks over data folders with one dictionary."""

import logging
from pathlib import Path
from typing import Any, ClassVar

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask

from fairseq_poolingformer.text.data_folder import DataFolder, Layout

logger = logging.getLogger(__name__)


class OneDictionaryTask(FairseqTask):
    """A task whose data folders have one dictionary, ``dict.txt``; ``cfg`` has ``data`` and ``train_subset``.

    Args:
        cfg: the task's options.
        dictionary: of its inputs and targets.
    """

    layout: ClassVar[Layout]  # the files of its data folders

    def __init__(self, cfg, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary

    @classmethod
    def setup_task(cls, cfg, **kwargs: Any) -> "OneDictionaryTask":
        """The task with its first data folder's dictionary.

        Raises:
            FileNotFoundError: the folder has no ``dict.txt``.
        """
        folder = DataFolder(Path(utils.split_paths(cfg.data)[0]), cls.layout)
        dictionary = Dictionary.load(str(folder.dictionary()))
        logger.info("dictionary: %d symbols", len(dictionary))
        return cls(cfg, dictionary)

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

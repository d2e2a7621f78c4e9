"""The base of all tasks over data folders: checks of dictionaries, criterions and sizes, and one dictionary."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.data import Dictionary, FairseqDataset
from fairseq.data.data_utils import numpy_seed
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqEncoderModel, FairseqLanguageModel
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from fairseq_poolingformer.checkpoints import DAMAGE, first_line
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.options import option
from fairseq_poolingformer.text.data_folder import DataFolder, FolderError, Layout, tokenizer_path
from fairseq_poolingformer.text.dictionary import DIGESTS, symbols_digest
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.training.epoch import EpochBatches

logger = logging.getLogger(__name__)

KINDS = {
    FairseqEncoderDecoderModel: "an encoder with a decoder",
    FairseqEncoderModel: "an encoder alone",
    FairseqLanguageModel: "a decoder alone",
}


@dataclass
class CheckedConfig(FairseqDataclass):
    skip_nonfinite: int = option(
        0,
        "number of updates with a NaN or infinite gradient that a run may drop, each named in the log; one more "
        "ends the training (default: 0)",
    )
    update_freq: Any = II("optimization.update_freq")  # noqa: RUF009 - it is a text


class CheckedTask(FairseqTask):
    """A task over data folders; ``cfg`` has ``data`` and ``train_subset``."""

    # its checkpoints load with no other dictionary: with two words exchanged, nothing else would tell

    layout: ClassVar[Layout]  # the files of its data folders
    criterion: ClassVar[str]  # fairseq's --criterion with the task's loss
    other_criterions: ClassVar[tuple[str, ...]] = ()  # that fit its batches, too
    logged: Sequence[str] = ()  # metrics of a validation, beside those of its criterion
    models: ClassVar[type[BaseFairseqModel]] = FairseqEncoderModel  # the one of KINDS that it trains
    arch: ClassVar[str] = "poolingformer_roberta_base"  # such a model

    @property
    def data_folder(self) -> Path:
        return self.folder(split="", epoch=1)

    def folder(self, split: str, epoch: int) -> Path:
        """The data folder of a split; of several folders, each epoch trains on the next one."""
        paths = utils.split_paths(self.cfg.data)
        return Path(paths[(epoch - 1) % len(paths)] if split == self.cfg.train_subset else paths[0])

    def remember(self, dictionaries: Mapping[str, Sequence[str]]) -> None:
        """Save these dictionaries' digests in checkpoints: file name -> symbols of the file."""
        self.dictionary_digests = {name: symbols_digest(symbols) for name, symbols in dictionaries.items()}

    def build_model(self, cfg, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        kind = next((text for kind, text in KINDS.items() if isinstance(model, kind)), None)
        if kind not in (None, KINDS[self.models]):
            raise UsageError(
                f"--arch {getattr(cfg, '_name', None) or type(model).__name__} is {kind}, and this task trains "
                f"{KINDS[self.models]}: give one such as --arch {self.arch}, or another --task"
            )
        return model

    def build_criterion(self, cfg, from_checkpoint: bool = False) -> FairseqCriterion:
        criterion = super().build_criterion(cfg, from_checkpoint)
        is_known = type(criterion).__module__.startswith(("fairseq.", "fairseq_poolingformer."))
        fitting = tuple(CRITERION_REGISTRY[name] for name in (self.criterion, *self.other_criterions))
        if criterion is None or (is_known and not isinstance(criterion, fitting)):
            name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
            raise ValueError(f"this task needs --criterion {self.criterion}, and it is {name}")
        self._open_tokenizer()
        return criterion

    def _open_tokenizer(self) -> None:
        """Raise FolderError where the data folder's tokenizer is damaged, which predictions alone would notice."""
        if not tokenizer_path(self.data_folder).is_dir():
            return
        try:
            load_tokenizer(self.data_folder)
        except DAMAGE as error:
            raise FolderError(
                f"{tokenizer_path(self.data_folder)} cannot be opened ({first_line(error)}), and predictions will need "
                "it: restore it from a copy, or preprocess again"
            ) from error

    def filter_indices_by_size(
        self, indices: np.ndarray, dataset: FairseqDataset, max_positions: Any = None, *args: Any, **named: Any
    ) -> np.ndarray:
        """Return all ``indices``, where fairseq leaves out examples of more than ``--max-tokens`` with a warning."""
        fitting = super().filter_indices_by_size(indices, dataset, max_positions, *args, **named)
        if len(fitting) < len(indices) and dataset is self.datasets.get(self.cfg.train_subset):
            raise UsageError(
                f"{len(indices) - len(fitting)} of {len(indices)} examples of {self.cfg.train_subset} have more than "
                f"{max_positions} tokens and would be left out: raise --max-tokens, or cut or divide the examples with "
                "--max-source-positions or --max-positions"
            )
        return fitting

    def get_batch_iterator(
        self,
        dataset: FairseqDataset,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        seed: int = 1,
        epoch: int = 1,
        data_buffer_size: int = 0,
        disable_iterator_cache: bool = False,
        update_epoch_batch_itr: bool = False,
        **shards: Any,
    ) -> EpochBatches:
        """fairseq's batches of a split; those of training are composed anew in every epoch."""
        is_kept = not (disable_iterator_cache or dataset is self.datasets.get(self.cfg.train_subset))
        if is_kept and dataset in self.dataset_to_epoch_iter:
            return self.dataset_to_epoch_iter[dataset]
        dataset.set_epoch(epoch)
        with numpy_seed(seed + epoch):
            examples = dataset.ordered_indices()
        if max_positions is not None:
            examples = self.filter_indices_by_size(examples, dataset, max_positions, ignore_invalid_inputs)
        cut = partial(
            dataset.batch_by_size,
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=required_batch_size_multiple,
        )
        settings = {"seed": seed, "epoch": epoch, "buffer_size": data_buffer_size, "reuse_dataloader": True, **shards}
        batches = EpochBatches(dataset, cut(examples), cut, self.cfg.update_freq, **settings)
        if is_kept:
            self.dataset_to_epoch_iter[dataset] = batches
        return batches

    def state_dict(self) -> dict[str, Any]:
        """The state that fairseq saves of the task, and the digests of its dictionaries."""
        digests = getattr(self, "dictionary_digests", {})
        return {**super().state_dict(), **({DIGESTS: digests} if digests else {})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint's state after comparing the dictionaries."""
        self.check_dictionaries(state_dict)
        super().load_state_dict({name: value for name, value in state_dict.items() if name != DIGESTS})

    def check_dictionaries(self, state_dict: Mapping[str, Any]) -> None:
        """Compare the data folder's dictionaries with those of a checkpoint; an older one does not name any."""
        trained = state_dict.get(DIGESTS) or {}
        for name, digest in getattr(self, "dictionary_digests", {}).items():
            if trained.get(name, digest) != digest:
                raise ValueError(
                    f"it was trained with another {name} than that of {self.cfg.data}: the same numbers mean other "
                    "words there. Give a data folder with the dictionary that it was trained with, or preprocess again "
                    "with that folder's tokenizer"
                )


@dataclass
class OneDictionaryConfig(CheckedConfig):
    data: str = option(MISSING, "data folder; of several, separated by colons, each epoch trains on the next one")
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")


class OneDictionaryTask(CheckedTask):
    """A task whose data folders have one dictionary, ``dict.txt``, and which has a loss of its own."""

    def __init__(self, cfg, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary

    @classmethod
    def setup_task(cls, cfg, **kwargs: Any) -> "OneDictionaryTask":
        path = DataFolder(Path(utils.split_paths(cfg.data)[0]), cls.layout).dictionary()
        dictionary = Dictionary.load(str(path))
        logger.info("dictionary: %d symbols", len(dictionary))
        symbols = list(dictionary.symbols)  # tasks add further ones
        task = cls(cfg, dictionary)
        task.remember({path.name: symbols})
        return task

    def max_positions(self) -> int:
        return self.cfg.max_positions

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary


def check_encoder(model: BaseFairseqModel, task: str, max_positions: int) -> None:
    """Refuse a model that takes no head of a task, or fewer tokens than the task's segments have."""
    if not hasattr(model, "register_head"):
        raise ValueError(
            f"--task {task} needs an encoder such as --arch poolingformer_roberta_base, "
            f"but {type(model).__name__} is of another kind"
        )
    if model.max_positions() < max_positions:
        raise ValueError(f"--max-positions {max_positions}, but the model takes {model.max_positions()} tokens")

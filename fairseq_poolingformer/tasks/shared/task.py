"""The base of Longformer's downstream tasks: long documents in segments, one head, marks in the dictionary."""

import logging
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.dataset import SegmentsDataset
from fairseq_poolingformer.tasks.shared.examples import Examples, Symbols
from fairseq_poolingformer.tasks.shared.one_dictionary import OneDictionaryConfig, OneDictionaryTask, check_encoder
from fairseq_poolingformer.text.marks import MARKS

logger = logging.getLogger(__name__)


@dataclass
class DocumentTaskConfig(OneDictionaryConfig):
    max_positions: int = field(
        default=4096, metadata={"help": "tokens of a segment; longer documents have several (RoBERTa: 512)"}
    )
    max_segments: int = field(
        default=0,
        metadata={
            "help": "in training, leave out what is beyond so many segments of an example, which bounds the memory; "
            "0: leave out nothing. Validation and prediction always read everything"
        },
    )
    no_global_attention: bool = field(default=False, metadata={"help": "make no token global (Longformer, table 10)"})


class Predictor(Protocol):
    """Collects the predictions of a split."""

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take the head's output of a batch, which has the examples with these numbers; all on the CPU."""

    def write(self, path: Path) -> None:
        """Write the predictions of all examples in the task's official format."""


class DocumentTask(OneDictionaryTask):
    """A task over documents in segments; subclasses say how to cut them, and give the head, its loss and predictions.

    ``<mask>`` and the marks of :mod:`~fairseq_poolingformer.text.marks` follow the data folder's dictionary.

    Raises:
        ValueError: an option is out of range.
    """

    criterion = "document_task"
    kind: ClassVar[str]  # "kind" of its data folders' corpus.json, and its head's name

    def __init__(self, cfg, dictionary: Dictionary) -> None:
        dictionary.add_symbol("<mask>")  # as RoBERTa's and XLM-R's embeddings have it
        marks = {mark: dictionary.add_symbol(mark, overwrite=True) for mark in MARKS}
        super().__init__(cfg, dictionary)
        self.symbols = Symbols(dictionary.bos(), dictionary.eos(), dictionary.pad(), marks)
        self.check_lengths()

    def check_lengths(self) -> None:
        """Raise ValueError where the length or the number of segments is out of range."""
        for name, least in (("max_positions", 8), ("max_segments", 0)):
            if getattr(self.cfg, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} must be {least} or more, got {getattr(self.cfg, name)}")

    def read_whole(self) -> None:
        """Read every split whole, the training split too, as prediction does."""
        self.cfg.max_segments = 0

    @property
    def uses_global_tokens(self) -> bool:
        """Whether examples have global tokens."""
        return not self.cfg.no_global_attention

    @abstractmethod
    def build_head(self, embed_dim: int, dropout: float) -> nn.Module:
        """Build the head for features of that width; see :meth:`PoolingformerRoberta.register_head`."""

    @abstractmethod
    def build_examples(self, folder: Path, split: str, max_segments: int) -> Examples:
        """Open a split; ``max_segments`` is the most segments of an example, 0 for all."""

    @staticmethod
    @abstractmethod
    def loss(output: Any, target: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of a batch.

        Args:
            output: of the head.
            target: of :class:`~fairseq_poolingformer.tasks.shared.dataset.SegmentsDataset`.

        Returns:
            The loss summed over examples; sums to log: ``NAME_loss`` for each part of several, and
            ``_NAME_correct`` with ``_NAME_total`` for each share.
        """

    @abstractmethod
    def predictor(self, folder: Path, split: str) -> Predictor:
        """Return an empty collection of predictions."""

    def max_positions(self) -> int:
        """Return the most tokens of a segment."""
        return self.cfg.max_positions

    def filter_indices_by_size(
        self,
        indices: np.ndarray,
        dataset: SegmentsDataset,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
    ) -> np.ndarray:
        """Return all ``indices``: each segment fits, however many an example has."""
        return indices

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model and add the head.

        Raises:
            ValueError: the architecture takes no head, or takes fewer tokens than a segment has.
        """
        model = super().build_model(cfg, from_checkpoint)
        check_encoder(model, self.kind, self.cfg.max_positions)
        model.register_head(self.kind, self.build_head(model.args.encoder_embed_dim, model.args.dropout))
        if not self.uses_global_tokens:
            model.leave_out_global_parameters()
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: the folder is damaged, or of another kind.
        """
        is_training = split == self.cfg.train_subset
        folder = self.folder(split, epoch)
        examples = self.build_examples(folder, split, self.cfg.max_segments if is_training else 0)
        logger.info("%s: %d examples in %s", split, len(examples), folder)
        self.datasets[split] = SegmentsDataset(examples, self.symbols.pad, shuffle=is_training)


def choice_loss(logits: Tensor, choice: Tensor, unknown: int, name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the cross entropy of choices, and count the right ones.

    Args:
        logits: (B, K).
        choice: (B,) int64 the right ones; ``unknown`` where there is none, which counts nothing.
        unknown: a number that is no choice.
        name: of the counts, as :meth:`DocumentTask.loss` returns them.
    """
    loss = F.cross_entropy(logits, choice, ignore_index=unknown, reduction="sum")
    known = choice != unknown
    right = (logits.argmax(-1) == choice) & known
    return loss, {f"_{name}_correct": right.sum(), f"_{name}_total": known.sum()}

"""The base of Longformer's downstream tasks: long documents in segments, one head, marks in the dictionary."""

import json
import logging
import math
import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.shared.base_task import OneDictionaryConfig, OneDictionaryTask, check_encoder
from fairseq_poolingformer.tasks.shared.examples import Examples, Symbols
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.labels import read_labels
from fairseq_poolingformer.training.sized_dataset import SizedDataset

logger = logging.getLogger(__name__)


class SegmentsDataset(SizedDataset):
    """Examples of a downstream task; the rows of a batch are all segments of its examples."""

    whole, remedy = " in all its segments", ", or in training --max-segments"

    def __init__(self, examples: Examples, pad: int, shuffle: bool = False) -> None:
        super().__init__(examples.sizes, shuffle)
        self.examples, self.pad = examples, pad

    def set_epoch(self, epoch: int) -> None:
        self.examples.set_epoch(epoch)

    def used(self) -> np.ndarray:
        return np.flatnonzero(self.examples.trainable)

    def num_counted(self) -> int:
        """How many trainable examples have a known target."""
        return int(np.count_nonzero(self.examples.trainable & self.examples.known))

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = int(index)
        return {
            "id": index,
            "segments": self.examples.segments(index),
            "inputs": self.examples.inputs(index),
            "targets": self.examples.targets(index),
        }

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch of B items of this dataset with N segments together, padded on the right."""
        if not samples:
            return {}
        segments = [segment for sample in samples for segment in sample["segments"]]
        counts = torch.tensor([len(sample["segments"]) for sample in samples])
        head_inputs = {"example": torch.arange(len(samples)).repeat_interleave(counts), "num_examples": len(samples)}
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(segment.tokens) for segment in segments),
            "net_input": {
                "src_tokens": _pad([segment.tokens for segment in segments], self.pad),
                "global_mask": _pad([segment.global_mask for segment in segments], False),
                "head_inputs": head_inputs
                | _padded([segment.inputs for segment in segments])
                | _joined([sample["inputs"] for sample in samples]),
            },
            "target": _padded([segment.targets for segment in segments])
            | _joined([sample["targets"] for sample in samples]),
        }


def _padded(rows: list[dict[str, np.ndarray]]) -> dict[str, Tensor]:
    return {name: _pad([row[name] for row in rows], 0) for name in rows[0]}


def _joined(values: list[dict[str, Any]]) -> dict[str, Tensor | list[Tensor]]:
    joined: dict[str, Tensor | list[Tensor]] = {}
    for name, first in values[0].items():
        column = [value[name] for value in values]
        joined[name] = list(map(torch.as_tensor, column)) if isinstance(first, np.ndarray) else torch.tensor(column)
    return joined


def _pad(rows: list[np.ndarray], value: int) -> Tensor:
    """Integers become int64, booleans stay as they are."""
    tensors = [torch.from_numpy(row if row.dtype == bool else row.astype(np.int64)) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value)


@dataclass
class DocumentTaskConfig(OneDictionaryConfig):
    max_positions: int = option(4096, "tokens of a segment; longer documents have several (RoBERTa: 512)")
    max_segments: int = option(
        0,
        "in training, leave out what is beyond so many segments of an example, which bounds the memory; "
        "0: leave out nothing. Validation and prediction always read everything",
    )
    no_global_attention: bool = option(False, "make no token global (Longformer, table 10)")


class Predictor(Protocol):
    """Collects the predictions of a split."""

    def __init__(self, folder: Path, split: str) -> None: ...

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take the head's output of a batch, which has the examples with these numbers; all on the CPU."""

    def write(self, path: Path) -> None:
        """Write the predictions of all examples in the task's official format."""


class LinesPredictor(Predictor):
    """Writes ``found``, which has a JSON object by the number of each example; in ASCII a lone surrogate has a form."""

    found: dict[int, dict[str, Any]]
    is_ascii: ClassVar[bool] = True

    def write(self, path: Path) -> None:
        write_lines(path, [json.dumps(self.found[number], ensure_ascii=self.is_ascii) for number in sorted(self.found)])


class DocumentTask(OneDictionaryTask):
    """A task over documents in segments; subclasses cut them, and give the head, its loss and predictions."""

    criterion = "document_task"
    kind: ClassVar[str]  # "kind" of its data folders' corpus.json, and its head's name
    predictor: ClassVar[type[Predictor]]
    marks: ClassVar[tuple[str, ...]] = MARKS  # a task with marks of its own puts them behind these

    def __init__(self, cfg, dictionary: Dictionary) -> None:
        dictionary.add_symbol("<mask>")  # as RoBERTa's and XLM-R's embeddings have it
        marks = {mark: dictionary.add_symbol(mark, overwrite=True) for mark in self.marks}
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
        return not self.cfg.no_global_attention

    @abstractmethod
    def build_head(self, embed_dim: int, dropout: float) -> nn.Module:
        """Build the head for features of that width; see :meth:`PoolingformerRoberta.register_head`."""

    @abstractmethod
    def build_examples(self, folder: Path, split: str, max_segments: int) -> Examples:
        """Open a split; ``max_segments`` is the most segments of an example, 0 for all."""

    def reading(self, max_segments: int) -> dict[str, Any]:
        """The arguments of most tasks' examples, see :class:`~fairseq_poolingformer.tasks.shared.examples.Examples`."""
        return {
            "symbols": self.symbols,
            "max_positions": self.cfg.max_positions,
            "max_segments": max_segments,
            "use_global": self.uses_global_tokens,
        }

    @staticmethod
    @abstractmethod
    def loss(output: Any, target: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of a batch."""

    def filter_indices_by_size(self, indices: np.ndarray, *args: Any, **named: Any) -> np.ndarray:
        """Return all ``indices``: each segment fits, however many an example has."""
        return indices

    def build_model(self, cfg, from_checkpoint: bool = False):
        model = super().build_model(cfg, from_checkpoint)
        check_encoder(model, self.kind, self.cfg.max_positions)
        model.register_head(self.kind, self.build_head(model.args.encoder_embed_dim, model.args.dropout))
        if not self.uses_global_tokens:
            model.leave_out_global_parameters()
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        is_training = split == self.cfg.train_subset
        folder = self.folder(split, epoch)
        examples = self.build_examples(folder, split, self.cfg.max_segments if is_training else 0)
        logger.info("%s: %d examples in %s", split, len(examples), folder)
        self.datasets[split] = SegmentsDataset(examples, self.symbols.pad, shuffle=is_training)


def check_weights(weights: Mapping[str, float]) -> None:
    """Raise ValueError unless the weights of a loss's parts are finite and 0 or more, and one of them more."""
    if not (all(0 <= weight < math.inf for weight in weights.values()) and any(weights.values())):
        raise ValueError(
            f"{', '.join(f'--{part}-loss-weight' for part in weights)} must be 0 or more, and one of them more than 0; "
            f"got {', '.join(f'{weight:g}' for weight in weights.values())}"
        )


class LabelledTask(DocumentTask):
    """A task whose data folders name labels; its checkpoints keep them."""

    @cached_property
    def labels(self) -> list[str]:
        return read_labels(self.data_folder, self.layout)

    def state_dict(self) -> dict[str, Any]:
        """The state that every task saves, and the names of the labels."""
        return {**super().state_dict(), "labels": self.labels}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check that a checkpoint to predict with or to validate has the data folder's dictionary and labels."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "labels"})
        trained = state_dict.get("labels")
        if trained is not None and trained != self.labels:
            raise ValueError(
                f"the checkpoint's labels are {', '.join(trained)}, but those of {self.data_folder} are "
                f"{', '.join(self.labels)}; make the folder with --labels {' '.join(map(shlex.quote, trained))}"
            )


@register_criterion("document_task", dataclass=FairseqDataclass)
class DocumentTaskCriterion(FairseqCriterion):
    """A :class:`DocumentTask`'s loss summed over examples, logged with its parts in bits, and the shares it counts."""

    logged: Sequence[str] = ("loss",)

    def forward(self, model, sample: dict[str, Any], reduce: bool = True):
        """Compute the loss of a batch of ``SegmentsDataset``, a sum whatever ``reduce`` is."""
        output, _ = model(**sample["net_input"])
        loss, sums = self.task.loss(output, sample["target"])
        count = sample["nsentences"]
        logging_output = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": count}
        return loss, count, logging_output | {"sample_size": count} | sums

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        if not logging_outputs:
            raise ValueError("the split has no example that the task counts, such as one with an answer that is read")
        totals = {name: sum(log.get(name, 0) for log in logging_outputs) for name in logging_outputs[0]}
        count = totals["sample_size"]
        for name in totals:
            if name == "loss" or name.endswith("_loss"):
                metrics.log_scalar(name, totals[name] / count / math.log(2), count, round=3)
            elif name.endswith("_correct"):
                share = name.removeprefix("_").removesuffix("_correct")
                of = float(totals[f"_{share}_total"])
                if of or share == "f1":  # of nothing it is 0: the best checkpoint needs a number
                    metrics.log_scalar(share, float(totals[name]) / (of or 1), of, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True

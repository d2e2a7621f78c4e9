"""Character language models: one long text, read segment after segment."""

# ruff: noqa: UP045 - fairseq reads the fields' types at run time and knows Optional only

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from omegaconf import II, MISSING

from fairseq_poolingformer.data.carried_memory import CarriedMemory
from fairseq_poolingformer.data.text_stream import StreamSegments, TextStream
from fairseq_poolingformer.tasks.one_dictionary import OneDictionaryTask
from fairseq_poolingformer.text.byte_symbols import BYTE_SYMBOLS
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.dictionary import read_symbols

logger = logging.getLogger(__name__)


@dataclass
class CharLMConfig(FairseqDataclass):
    data: str = field(
        default=MISSING,
        metadata={
            "help": "data folder of preprocess.char_lm; of several, separated by colons, each epoch reads the next"
        },
    )
    tokens_per_sample: int = field(default=512, metadata={"help": "bytes of a segment"})
    carry_memory: bool = field(
        default=False,
        metadata={"help": "refuse a model without memory; one with memory carries it from segment to segment anyway"},
    )
    no_carry_memory: bool = field(
        default=False,
        metadata={"help": "train a model with memory without it: each segment stands alone"},
    )
    rotate_text: bool = field(
        default=False,
        metadata={"help": "begin every epoch at another byte of the text, so that it is cut elsewhere"},
    )
    eval_context: int = field(
        default=32256,
        metadata={
            "help": "poolingformer-eval-lm: bytes of a sequence, or read by a model with memory before it is scored; "
            "no more than --tokens-per-sample for a model without memory that sees everything"
        },
    )
    eval_stride: int = field(
        default=512, metadata={"help": "poolingformer-eval-lm: bytes at the end of a sequence that are scored"}
    )
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")
    amp: bool = II("common.amp")
    amp_batch_retries: int = II("common.amp_batch_retries")


@register_task("char_lm", dataclass=CharLMConfig)
class CharLMTask(OneDictionaryTask):
    """A text of bytes, each to be predicted from those before it.

    ``--batch-size`` rows of each worker are read side by side, never shuffled: a batch is the next segment of each.
    A model's memory goes from a batch to the next, is empty at the beginning of an epoch, and is saved in checkpoints;
    with ``--no-carry-memory`` there is none.
    """

    cfg: CharLMConfig

    def __init__(self, cfg: CharLMConfig) -> None:
        super().__init__(cfg, byte_dictionary())
        if cfg.tokens_per_sample < 1:
            raise ValueError(f"--tokens-per-sample must be 1 or more, got {cfg.tokens_per_sample}")
        if cfg.carry_memory and cfg.no_carry_memory:
            raise ValueError("--carry-memory and --no-carry-memory: give one of the two")
        self.train_memory = None if cfg.no_carry_memory else CarriedMemory()
        self.valid_memory = None if cfg.no_carry_memory else CarriedMemory()
        self._saved_memories: list[dict[str, Any]] | None = None

    @classmethod
    def setup_task(cls, cfg: CharLMConfig, **kwargs: Any) -> "CharLMTask":
        """The task; the dictionary needs no file.

        Args:
            cfg: its options.
            kwargs: unused.
        """
        return cls(cfg)

    def max_positions(self) -> int:
        """Bytes of a segment."""
        return self.cfg.tokens_per_sample

    def build_model(self, cfg, from_checkpoint: bool = False):
        """The model.

        Raises:
            ValueError: it takes fewer bytes than a segment has, or has no memory and is to carry one.
        """
        model = super().build_model(cfg, from_checkpoint)
        if getattr(model, "memory_length", 0) == 0:
            if self.cfg.carry_memory and not from_checkpoint:
                raise ValueError(
                    "--carry-memory, but the model has no memory: give --memory-length, or leave out --carry-memory"
                )
            self.train_memory = self.valid_memory = None
        if self.train_memory is not None and self.cfg.amp and self.cfg.amp_batch_retries and not from_checkpoint:
            raise ValueError(
                "--amp reads a batch again after an overflow, with the memory of the first reading: "
                "give --amp-batch-retries 0 as well, or --fp16 or --bf16 instead"
            )
        longest = model.max_positions()
        if longest is not None and longest < self.cfg.tokens_per_sample:
            raise ValueError(
                f"--tokens-per-sample {self.cfg.tokens_per_sample}, but the model takes {longest} bytes at a time"
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split of the data folder.

        Args:
            split: its name.
            epoch: which of several data folders, in training.
            combine: unused.
            kwargs: unused.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: it is not a folder of ``preprocess.char_lm``.
        """
        self.datasets[split] = load_text(self.folder(split, epoch), split)
        logger.info("%s: %d bytes", split, len(self.datasets[split]))

    def has_sharded_data(self, split: str) -> bool:
        """Whether epochs read different folders."""
        return len(utils.split_paths(self.cfg.data)) > 1

    def get_batch_iterator(
        self,
        dataset: TextStream,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        skip_remainder_batch: bool = False,
        **kwargs: Any,
    ) -> EpochBatchIterator:
        """Batches of a text, in its order.

        Args:
            dataset: the text.
            max_tokens: bytes of a worker's batch at most.
            max_sentences: its rows at most.
            num_shards, shard_id: how many workers there are, and which this one is.
            num_workers: processes that read data.
            epoch: decides where the text begins, with ``--rotate-text``.
            data_buffer_size: batches to prepare.
            skip_remainder_batch: leave out the last batch of an epoch.
            kwargs: fairseq's options of examples that may be ordered; unused.

        Raises:
            ValueError: neither limit is given, or not even one segment fits.
        """
        is_training = dataset is self.datasets.get(self.cfg.train_subset)
        segments = StreamSegments(
            dataset,
            num_rows=num_shards * self._rows(max_sentences, max_tokens),
            tokens_per_sample=self.cfg.tokens_per_sample,
            rotation_seed=self.cfg.seed if is_training and self.cfg.rotate_text else None,
        )
        segments.set_epoch(epoch)
        return EpochBatchIterator(
            dataset=segments,
            collate_fn=segments.collater,
            batch_sampler=segments.batches(num_shards),
            seed=self.cfg.seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            disable_shuffling=True,
            skip_remainder_batch=skip_remainder_batch,
            persistent_workers=False,  # there is an iterator for each epoch
        )

    def _rows(self, max_sentences: int | None, max_tokens: int | None) -> int:
        length = self.cfg.tokens_per_sample
        limits = [max_sentences, max_tokens and max_tokens // length]
        rows = min((limit for limit in limits if limit is not None), default=0)
        if rows < 1:
            raise ValueError(
                f"give --batch-size, the rows of text that each worker reads side by side (with --max-tokens "
                f"{max_tokens} and --tokens-per-sample {length} there is room for {rows})"
            )
        return rows

    def gather_checkpoint_state(self) -> None:
        """Bring the memories of all workers to the one that saves; all of them must call this."""
        if self.train_memory is None:
            return
        state = self.train_memory.state_dict()
        if not torch.distributed.is_initialized():
            self._saved_memories = [state]
            return
        is_master = torch.distributed.get_rank() == 0
        memories = [None] * torch.distributed.get_world_size() if is_master else None
        torch.distributed.gather_object(state, memories)
        self._saved_memories = memories

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """What fairseq saves of the task: the memories of all workers, as gathered last."""
        memories, self._saved_memories = self._saved_memories, None
        return {type(self).__name__: {"memories": memories}} if memories else {}

    def set_checkpoint_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was saved, when the text is gone on with."""
        if self.train_memory is None:
            return
        is_distributed = torch.distributed.is_initialized()
        workers = torch.distributed.get_world_size() if is_distributed else 1
        if len(state["memories"]) != workers:
            logger.warning("saved memories are of %d workers, not %d: unused", len(state["memories"]), workers)
            return
        self.train_memory.load_state_dict(state["memories"][torch.distributed.get_rank() if is_distributed else 0])


def byte_dictionary() -> Dictionary:
    """fairseq's dictionary of the 256 bytes."""
    dictionary = Dictionary()
    for symbol in BYTE_SYMBOLS:
        dictionary.add_symbol(symbol)
    return dictionary


def load_text(folder: Path, split: str) -> TextStream:
    """A split of a data folder of ``preprocess.char_lm``.

    Raises:
        FileNotFoundError: the folder has no such split, or is not finished.
        ValueError: it is a data folder of something else, or damaged.
    """
    data = DataFolder(folder, BYTES)
    dictionary, prefix = data.dictionary(), data.array(split)
    if tuple(read_symbols(dictionary)) != BYTE_SYMBOLS:
        raise ValueError(
            f"{dictionary}: not the dictionary of bytes, which --task char_lm reads; make the folder with "
            f"{BYTES.made_with}"
        )
    data.corpus()  # written last: without it, splits may be of different texts
    return TextStream(prefix)

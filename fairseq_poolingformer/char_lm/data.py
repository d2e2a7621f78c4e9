"""One long text, the blocks in which a language model reads it, and the memory that it carries between them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.text.byte_symbols import BYTE_SYMBOLS, FIRST_BYTE, NUM_SYMBOLS
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.dictionary import EOS, PAD, read_symbols
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.training.epoch import EpochBatches

logger = logging.getLogger(__name__)

ARRANGEMENT = "arrangement"  # in the iterator's state


class TextStream(FairseqDataset):
    """A memory-mapped split of ``preprocess char_lm``'s data folder; its first symbol is predicted from ``</s>``."""

    def __init__(self, prefix: Path, leave_out: int | None = None) -> None:
        self.sequences = Sequences(prefix)
        self._left: np.ndarray | None = None
        if leave_out is not None:
            self._left = self.sequences.values[self.sequences.values != leave_out]
        if not len(self):
            raise ValueError(f"{prefix}.bin: the text is empty; preprocess again")

    def __len__(self) -> int:
        return self.sequences.num_values if self._left is None else len(self._left)

    def __getitem__(self, index: int) -> int:
        return int(self._symbols(index, index + 1)[0])

    def _symbols(self, first: int, end: int) -> np.ndarray:
        return self.sequences.read(first, end) if self._left is None else self._left[first:end]

    def read(self, first: int, end: int, rotation: int = 0) -> tuple[Tensor, Tensor]:
        """The symbols from ``first`` to ``end``, each with the symbol before it."""
        length = len(self)
        begin, size = (first + rotation) % length, end - first
        before = [self[begin - 1]] if begin else [EOS]
        head = self._symbols(begin, min(begin + size, length))
        tail = self._symbols(0, begin + size - length) if begin + size > length else head[:0]
        targets = np.concatenate([head, tail]).astype(np.int64)
        inputs = np.concatenate([before, targets])[:size]
        if len(tail):
            inputs[len(head)] = EOS
        if len(targets) and not (targets.min() >= FIRST_BYTE and targets.max() < NUM_SYMBOLS):
            raise ValueError(
                f"{self.sequences.prefix}.bin: not a text of bytes; make the folder with {BYTES.made_with}"
            )
        return torch.from_numpy(inputs), torch.from_numpy(targets)


class TextBlocks(FairseqDataset):
    """A text in rows read side by side, block after block; item ``block * num_rows + row`` is a block of a row."""

    def __init__(
        self, stream: TextStream, *, num_rows: int, tokens_per_sample: int, rotation_seed: int | None = None
    ) -> None:
        if num_rows > len(stream):
            raise ValueError(
                f"{stream.sequences.prefix}.bin: {len(stream):,} symbols cannot be read as {num_rows:,} rows; "
                "give a smaller --batch-size"
            )
        self.stream = stream
        self.num_rows, self.tokens_per_sample = num_rows, tokens_per_sample
        self.bounds = [row * len(stream) // num_rows for row in range(num_rows + 1)]
        longest = -(-len(stream) // num_rows)
        self.num_blocks = -(-longest // tokens_per_sample)
        self.last_length = longest - (self.num_blocks - 1) * tokens_per_sample
        self.rotation_seed = rotation_seed
        self.rotation = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the symbol at which the epoch begins; all workers and resumed runs draw the same."""
        if self.rotation_seed is not None:
            self.rotation = int(np.random.default_rng([self.rotation_seed, epoch]).integers(len(self.stream)))

    def __len__(self) -> int:
        return self.num_blocks * self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        block, row = divmod(int(index), self.num_rows)
        end = self.bounds[row + 1]
        first = min(self.bounds[row] + block * self.tokens_per_sample, end)
        inputs, targets = self.stream.read(first, min(first + self.tokens_per_sample, end), self.rotation)
        return {"id": int(index), "inputs": inputs, "targets": targets}

    @property
    def arrangement(self) -> dict[str, int]:
        """Which bytes a block has: with others, blocks of one number are of other places in the text."""
        return {
            "bytes": len(self.stream),
            "rows": self.num_rows,
            "blocks": self.tokens_per_sample,
            "first byte": self.rotation,
        }

    def batches(self, num_workers: int) -> list[np.ndarray]:
        """Indices of each batch, block by block; worker w of W gets every W-th batch, and so the same rows."""
        return list(np.arange(len(self)).reshape(self.num_blocks * num_workers, -1))

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch: one block of several rows."""
        if not samples:
            return {}
        block = samples[0]["id"] // self.num_rows
        is_last = block == self.num_blocks - 1
        shape = (len(samples), self.last_length if is_last else self.tokens_per_sample)
        inputs, targets = torch.full(shape, PAD), torch.full(shape, PAD)
        for row, sample in enumerate(samples):
            length = len(sample["targets"])
            inputs[row, :length], targets[row, :length] = sample["inputs"], sample["targets"]
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": {"src_tokens": inputs},
            "target": targets,
            "ntokens": sum(len(sample["targets"]) for sample in samples),
            "nsentences": len(samples),
            "position": block * self.tokens_per_sample,
            "continues": block > 0,
            "goes_on": not is_last,
        }


class RowBatches(EpochBatches):
    """Blocks of rows, which an epoch cannot continue in other rows or blocks, nor in other processes."""

    dataset: TextBlocks

    def state_dict(self) -> dict[str, Any]:
        """The examples that the epoch has read, and how the text is divided."""
        return {**super().state_dict(), ARRANGEMENT: self._arrangement()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue an epoch; raise UsageError where the text is divided in another way within it."""
        before, now = state_dict.get(ARRANGEMENT), self._arrangement()
        if before is not None and before != now and state_dict["iterations_in_epoch"]:
            changes = [f"{name} {before.get(name)} (now {now[name]})" for name in now if before.get(name) != now[name]]
            raise UsageError(
                f"the checkpoint is within epoch {state_dict['epoch']}, which read the text with {', '.join(changes)}: "
                "give the former --batch-size, --tokens-per-sample, --seed and number of processes, or begin the text "
                "again by --reset-dataloader"
            )
        super().load_state_dict(state_dict)

    def _arrangement(self) -> dict[str, int]:
        return {**self.dataset.arrangement, "processes": self.num_shards}


class CarriedMemory:
    """Keeps a model's memory for the next batch of the same rows, and warns where position or number of rows differ."""

    def __init__(self) -> None:
        self._position = 0
        self._tensors: list[Tensor] | None = None

    def before(self, sample: dict[str, Any]) -> list[Tensor] | None:
        """The memory with which the model reads a batch."""
        if not sample["continues"]:
            return None
        tokens = sample["net_input"]["src_tokens"]
        other_rows = bool(self._tensors) and self._tensors[0].size(0) != tokens.size(0)
        if self._position != sample["position"] or other_rows:
            logger.warning(
                "no saved memory fits byte %d (another position or batch size): starting with an empty one",
                sample["position"],
            )
            return None
        return self._tensors and [tensor.to(tokens.device) for tensor in self._tensors]

    def keep(self, sample: dict[str, Any], memory: list[Tensor] | None) -> None:
        """Keep the memory that a model returned for a batch."""
        self._position = sample["position"] + sample["net_input"]["src_tokens"].size(1)
        self._tensors = None
        if sample["goes_on"] and memory is not None:
            tensors = [tensor.detach() for tensor in memory]
            # fairseq skips the update of a float16 pass that overflows, but its infinities would stay in the memory
            self._tensors = [t.nan_to_num(0.0, 0.0, 0.0) if t.dtype == torch.float16 else t for t in tensors]

    def state_dict(self) -> dict[str, Any]:
        """The state for :meth:`load_state_dict`, on the CPU."""
        return {"position": self._position, "tensors": self._tensors and [tensor.cpu() for tensor in self._tensors]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved memory."""
        self._position, self._tensors = state["position"], state["tensors"]


def byte_dictionary() -> Dictionary:
    """fairseq's dictionary of the 256 bytes."""
    dictionary = Dictionary()
    for symbol in BYTE_SYMBOLS:
        dictionary.add_symbol(symbol)
    return dictionary


def load_text(folder: Path, split: str, leave_out: int | None = None) -> TextStream:
    """Open a split of a data folder of ``poolingformer preprocess char_lm``, without a symbol if one is given."""
    data = DataFolder(folder, BYTES)
    dictionary = data.dictionary()
    if tuple(read_symbols(dictionary)) != BYTE_SYMBOLS:
        raise ValueError(
            f"{dictionary}: not the dictionary of bytes, which --task char_lm reads; make the folder with "
            f"{BYTES.made_with}"
        )
    data.corpus()  # written last: without it, splits may be of different texts
    return TextStream(data.array(split), leave_out)

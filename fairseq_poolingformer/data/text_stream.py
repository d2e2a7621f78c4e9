"""One long text, and the batches of segments that a language model reads it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE, NUM_SYMBOLS
from fairseq_poolingformer.text.data_folder import BYTES
from fairseq_poolingformer.text.dictionary import EOS, PAD
from fairseq_poolingformer.text.sequences import Sequences


class TextStream(FairseqDataset):
    """A split of a data folder of ``preprocess.char_lm``, memory-mapped.

    Every symbol is predicted once, from those before it; ``</s>`` stands before the first.

    Args:
        prefix: path of the ``.bin`` and ``.idx`` files without their suffix.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is damaged, or the text has no symbol.
    """

    def __init__(self, prefix: Path) -> None:
        self.sequences = Sequences(prefix)
        if not len(self):
            raise ValueError(f"{prefix}.bin: the text is empty; preprocess again")

    def __len__(self) -> int:
        return len(self.sequences.values)

    def __getitem__(self, index: int) -> int:
        return int(self.sequences.values[index])

    def read(self, first: int, end: int, rotation: int = 0) -> tuple[Tensor, Tensor]:
        """The symbols of a stretch, each with the one before it.

        Args:
            first, end: the stretch, half-open; 0 <= first <= end <= len(self).
            rotation: read the text as if it began at this symbol, and its beginning followed its end.

        Returns:
            inputs and targets (end - first,), int64.

        Raises:
            ValueError: an index is no byte of the dictionary.
        """
        where = (np.arange(first, end) + rotation) % len(self)
        values = self.sequences.values
        inputs, targets = values[where - 1].astype(np.int64), values[where].astype(np.int64)
        inputs[where == 0] = EOS
        if len(targets) and not (targets.min() >= FIRST_BYTE and targets.max() < NUM_SYMBOLS):
            raise ValueError(
                f"{self.sequences.prefix}.bin: not a text of bytes; make the folder with {BYTES.made_with}"
            )
        return torch.from_numpy(inputs), torch.from_numpy(targets)


class StreamSegments(FairseqDataset):
    """A text cut into rows that are read side by side, segment after segment (truncated back-propagation through time).

    Row r has the symbols from ``r * n // num_rows`` on. Item ``segment * num_rows + row`` is a segment of a row. The
    last segment is as long as what is left of the longest row; a shorter row is padded there.

    Args:
        stream: the text, of n symbols.
        num_rows: of all workers together.
        tokens_per_sample: symbols of a segment.
        rotation_seed: begin each epoch at another symbol, drawn with this seed; None: at the first.

    Raises:
        ValueError: there are more rows than symbols.
    """

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
        self.num_segments = -(-longest // tokens_per_sample)
        self.last_length = longest - (self.num_segments - 1) * tokens_per_sample
        self.rotation_seed = rotation_seed
        self.rotation = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw where the epoch begins; the same for all workers and when resumed."""
        if self.rotation_seed is not None:
            self.rotation = int(np.random.default_rng([self.rotation_seed, epoch]).integers(len(self.stream)))

    def __len__(self) -> int:
        return self.num_segments * self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        segment, row = divmod(int(index), self.num_rows)
        end = self.bounds[row + 1]
        first = min(self.bounds[row] + segment * self.tokens_per_sample, end)
        inputs, targets = self.stream.read(first, min(first + self.tokens_per_sample, end), self.rotation)
        return {"id": int(index), "inputs": inputs, "targets": targets}

    def batches(self, num_workers: int) -> list[np.ndarray]:
        """Indices of each batch: all workers' batches of a segment, then those of the next.

        Worker w of W, which gets every W-th of them, so reads the same rows from the first segment to the last.
        """
        return list(np.arange(len(self)).reshape(self.num_segments * num_workers, -1))

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch of one segment of several rows.

        Args:
            samples: items of the same segment.

        Returns:
            ``net_input.src_tokens`` and ``target`` (B, T), ``ntokens``; ``position``, bytes of each row before
            this segment; ``continues`` and ``goes_on``, bools: whether there is a segment before, and one after it.
        """
        if not samples:
            return {}
        segment = samples[0]["id"] // self.num_rows
        is_last = segment == self.num_segments - 1
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
            "position": segment * self.tokens_per_sample,
            "continues": segment > 0,
            "goes_on": not is_last,
        }

"""A tiny binarized corpus, made through fairseq's own API."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset

from tests.models import tiny_bart
from tests.patches.helpers import EXAMPLES, end_of_process


def _write_split(path: Path, dictionary: Dictionary, examples: int, generator: torch.Generator) -> None:
    builder = indexed_dataset.make_builder(f"{path}.bin", impl="mmap", vocab_size=len(dictionary))
    for index in range(examples):
        tokens = torch.randint(dictionary.nspecial, len(dictionary), (3 + index % 5,), generator=generator)
        builder.add_item(torch.cat([tokens, torch.tensor([dictionary.eos()])]).int())
    builder.finalize(f"{path}.idx")


@pytest.fixture(scope="session")
def dictionary() -> Dictionary:
    """Twelve words; every second one begins a word."""
    words = Dictionary()
    for index in range(12):
        words.add_symbol(f"w{index}", n=100 - index)
    return words


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, dictionary) -> Path:
    """A parallel corpus whose two sides share a dictionary."""
    folder, generator = tmp_path_factory.mktemp("corpus"), torch.Generator().manual_seed(0)
    for side in ("src", "tgt"):
        dictionary.save(str(folder / f"dict.{side}.txt"))
        for split, examples in EXAMPLES.items():
            _write_split(folder / f"{split}.src-tgt.{side}", dictionary, examples, generator)
    return folder


@pytest.fixture(scope="session")
def text(tmp_path_factory, dictionary) -> Path:
    """A monolingual corpus, for the masked_lm task."""
    folder = tmp_path_factory.mktemp("text")
    dictionary.save(str(folder / "dict.txt"))
    for split, examples in EXAMPLES.items():
        _write_split(folder / split, dictionary, examples, torch.Generator().manual_seed(1))
    return folder


@pytest.fixture
def documents(tmp_path) -> Path:
    """A data folder of documents and summaries; what fairseq keeps of a training in its process is forgotten."""
    rng = np.random.default_rng(0)
    examples = [(rng.integers(4, 12, rng.integers(3, 9)).tolist(), rng.integers(4, 12, 3).tolist()) for _ in range(36)]
    end_of_process()
    yield tiny_bart.write_data_folder(tmp_path / "data", 8, {"train": examples[:24], "valid": examples[24:]})
    end_of_process()

"""A data folder of documents in the format that preprocessing writes, with GPT-2's kind of tokenizer."""

from pathlib import Path

import numpy as np
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer
from tests.text.tiny_gpt2 import TEXT, write_vocabulary

EOS = 2


def random_texts(count: int, words: int, seed: int = 0) -> list[str]:
    """Texts of up to so many words."""
    rng, vocabulary = np.random.default_rng(seed), [word for word in TEXT.split() if "z" not in word]
    return [" ".join(rng.choice(vocabulary, rng.integers(1, words))) for _ in range(count)]


def write_folder(folder: Path, splits: dict[str, list[str]]) -> GPT2Tokenizer:
    """Writes splits of texts, ``dict.txt`` and ``tokenizer/``."""
    vocabulary = write_vocabulary(folder / "vocabulary")
    tokenizer = GPT2Tokenizer(*(vocabulary / name for name in GPT2Tokenizer.files))
    tokenizer.save(folder)
    tokenizer.write_dictionary(folder / "dict.txt")
    for split, texts in splits.items():
        builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=np.uint16)
        for text in texts:
            builder.add_item(torch.from_numpy(np.append(tokenizer.encode(text), EOS)))
        builder.finalize(str(folder / f"{split}.idx"))
    return tokenizer

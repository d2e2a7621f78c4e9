"""Data folders of the downstream tasks with random tokens, written sequence by sequence."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from fairseq_poolingformer.tasks.shared.examples import Symbols
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.sequences import SequencesWriter

WORDS = 40
MARK = {mark: WORDS + 5 + number for number, mark in enumerate(MARKS)}  # after 4 special symbols, words and <mask>
SYMBOLS = Symbols(0, 2, 1, MARK)


def write(folder: Path, kind: str, split: str, arrays: dict[str, list], texts: dict[str, list[str]], **corpus) -> Path:
    """Write a split; the dictionary has :data:`WORDS` words."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for number in range(WORDS):
        dictionary.add_symbol(f"w{number}")
    dictionary.save(str(folder / "dict.txt"))
    (folder / "corpus.json").write_text(json.dumps({"kind": kind, **corpus}))
    for name, sequences in arrays.items():
        with SequencesWriter(folder / f"{split}.{name}", np.int32) as writer:
            for sequence in sequences:
                writer.append(np.array(sequence, np.int32))
    for name, lines in texts.items():
        (folder / f"{split}.{name}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def words(rng: np.random.Generator, size: int) -> list[int]:
    return rng.integers(4, 4 + WORDS, size).tolist()


def random_wikihop(count: int, seed: int = 0, longest: int = 12, supports: int = 6) -> list[dict]:
    """Questions with 2 to 5 candidates and up to ``supports`` supports; one in five has no answer."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        candidates = [words(rng, rng.integers(1, 5)) for _ in range(rng.integers(2, 6))]
        answer = [int(rng.integers(len(candidates)))] if rng.random() < 0.8 else []
        texts = [words(rng, rng.integers(1, longest)) for _ in range(rng.integers(0, supports + 1))]
        question = words(rng, rng.integers(1, 6))
        examples.append({"question": question, "candidates": candidates, "supports": texts, "answer": answer})
    return examples


def write_wikihop(folder: Path, splits: dict[str, list[dict]]) -> Path:
    for split, examples in splits.items():
        arrays = {name: [example[name] for example in examples] for name in ("question", "answer")}
        for name in ("candidate", "support"):
            arrays[f"{name}s"] = [list(chain.from_iterable(example[f"{name}s"])) for example in examples]
            arrays[f"{name}_sizes"] = [list(map(len, example[f"{name}s"])) for example in examples]
        names = [json.dumps([f"{k}.{n}" for n in range(len(x["candidates"]))]) for k, x in enumerate(examples)]
        texts = {"id": [f"WH_{k}" for k in range(len(examples))], "candidates": names}
        write(folder, "wikihop", split, arrays, texts)
    return folder

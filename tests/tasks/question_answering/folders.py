"""Data folders of questions and documents, written with fairseq's own builder; the task that reads them."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from tests import lab
from tests.tasks.folders import write


@dataclass
class Example:
    """One example: paragraphs are (first, end) in document tokens, annotations rows of the data folder.

    ``without_text`` are document tokens that hold no text, as paragraphs' markers do.
    """

    question: list[int]
    document: list[int]
    paragraphs: list[tuple[int, int]] = field(default_factory=list)
    annotations: list[tuple[int, int, int, int]] = field(default_factory=list)
    without_text: tuple[int, ...] = ()


def write_folder(folder: Path, splits: dict[str, list[Example]], kind: str = "natural_questions") -> Path:
    """A data folder: token k of a document has the offsets 10 k to 10 k + 7, paragraph p is candidate 3 p + 1."""
    language, unit = ("", "token") if kind == "natural_questions" else ("\tenglish", "byte")
    for split, examples in splits.items():
        ids = [f"{100 + number}{language}" for number in range(len(examples))]
        write(folder, kind, split, {}, {"id": ids}, unit=unit)
        columns = {name: [] for name in ("question", "document", "start", "end", "paragraph", "annotation")}
        for example in examples:
            starts = [10 * k for k in range(len(example.document))]
            ends = [start + 7 * (k not in example.without_text) for k, start in enumerate(starts)]
            rows = [(a, b, 3 * p + 1, 10 * a, 10 * (b - 1) + 7) for p, (a, b) in enumerate(example.paragraphs)]
            paragraphs, annotations = (list(itertools.chain(*lists)) for lists in (rows, example.annotations))
            values = (example.question, example.document, starts, ends, paragraphs, annotations)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        for name, sequences in columns.items():
            dtype = np.uint16 if name in ("question", "document") else np.int32
            builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.{name}.bin"), dtype=dtype)
            for sequence in sequences:
                builder.add_item(torch.tensor(sequence, dtype=torch.int64))
            builder.finalize(str(folder / f"{split}.{name}.idx"))
    return folder


def random_examples(count: int, seed: int = 0, longest: int = 60) -> list[Example]:
    """Documents of 0 to ``longest`` tokens with gaps between their paragraphs, and answers of every type."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        length = int(rng.integers(0, longest + 1))
        cuts = np.unique(rng.integers(0, length + 1, int(rng.integers(0, 9)))) if length else np.zeros(0, int)
        paragraphs = [(int(a), int(b)) for a, b in itertools.pairwise(cuts) if rng.random() < 0.8]
        annotations = [_random_annotation(rng, paragraphs) for _ in range(int(rng.choice([1, 1, 1, 3, 5])))]
        question = rng.integers(4, 44, int(rng.integers(1, 12))).tolist()
        examples.append(Example(question, rng.integers(4, 44, length).tolist(), paragraphs, annotations))
    return examples


def _random_annotation(rng: np.random.Generator, paragraphs: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    if not paragraphs or rng.random() < 0.3:
        return 0, -1, -1, -1
    row = int(rng.integers(0, min(2, len(paragraphs))))  # few, so that annotators agree at times
    kind = int(rng.integers(1, 5))
    if kind != 1:
        return kind, row, -1, -1
    begin, end = paragraphs[row]
    a, b = sorted(rng.choice(np.arange(begin, end + 1), 2, replace=False).tolist())
    return kind, row, a, b


def build_task(folder, *flags, arch="poolingformer_roberta_tiny"):
    sizes = ("--max-positions", 24, "--doc-stride", 8, "--max-question-length", 6, "--seed", 3)
    return lab.task(folder, "question_answering", arch, *sizes, *flags, criterion="question_answering")

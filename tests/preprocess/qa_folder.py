"""Data folders of question answering, read with fairseq, and the examples that they came from."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

from fairseq.data import data_utils

from fairseq_poolingformer.tasks.question_answering.data import AnswerType
from fairseq_poolingformer.text.sequences import read_sizes

NAMES = ("question", "document", "start", "end", "paragraph", "annotation")
FIXTURES = Path(__file__).parent / "fixtures" / "qa"


def read_split(folder, split):
    """One dict an example: lists of integers, paragraphs and annotations as rows; id and notes."""
    columns = [read_sequences(folder / f"{split}.{name}") for name in NAMES]
    examples = [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]
    for name in ("id", "notes"):
        lines = (folder / f"{split}.{name}.txt").read_text(encoding="utf-8").split("\n")
        assert lines.pop() == ""
        for example, line in zip(examples, lines, strict=True):
            example[name] = line
    for example in examples:
        example["paragraph"] = rows(example["paragraph"], 5)
        example["annotation"] = rows(example["annotation"], 4)
    return examples


def read_sequences(prefix):
    sizes = read_sizes(prefix).tolist()
    if not any(sizes):  # fairseq cannot map an empty file
        return [[]] * len(sizes)
    return [sequence.tolist() for sequence in data_utils.load_indexed_dataset(str(prefix), None, dataset_impl="mmap")]


def rows(values, width):
    assert len(values) % width == 0
    return [tuple(values[k : k + width]) for k in range(0, len(values), width)]


def read_json_lines(*paths):
    for path in paths:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as lines:
            yield from map(json.loads, lines)


def simplified(example):
    """An example of NQ's original format in the simplified one, after the description of that format."""
    tokens = [token["token"].replace(" ", "_") for token in example["document_tokens"]]
    without_bytes = {"start_byte", "end_byte"}

    def strip(value):
        if isinstance(value, list):
            return [strip(item) for item in value]
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in without_bytes}
        return value

    fields = ("example_id", "question_text", "long_answer_candidates", "annotations")
    return {"document_text": " ".join(tokens), **{key: strip(example[key]) for key in fields}}


def check_paragraphs(stored, tops):
    """Paragraphs are ascending, disjoint rows of the corpus's outermost candidates: (index, start, end)."""
    end_before = 0
    for first, end, *candidate in stored["paragraph"]:
        assert end_before <= first < end <= len(stored["document"])
        assert tuple(candidate) in tops
        offsets = [(stored["start"][k], stored["end"][k]) for k in range(first, end)]
        assert all(candidate[1] <= start and stop <= candidate[2] for start, stop in offsets if start < stop)
        assert any(start < stop for start, stop in offsets)
        end_before = end


def answer_offsets(stored, row):
    """The offsets of a stored short answer."""
    kind, paragraph, first, end = row
    assert kind == AnswerType.SHORT
    assert stored["paragraph"][paragraph][0] <= first < end <= stored["paragraph"][paragraph][1]
    return stored["start"][first], stored["end"][end - 1]


def counted(lines):
    counts = defaultdict(int)
    for line in lines:
        for note in filter(None, line.split("; ")):
            counts[note] += 1
    return dict(counts)

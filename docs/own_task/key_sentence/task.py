"""fairseq's ``--task key_sentence``: ``<s> sentence [key] sentence [key] … </s>``, of which the last pieces are cut."""

import json
from dataclasses import dataclass

import numpy as np
from fairseq.tasks import register_task
from torch import nn

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment
from fairseq_poolingformer.tasks.shared.heads import at_marks, count_right_marks, initialize, mark_losses
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split

from .key_lines import LAYOUT


@dataclass(frozen=True)
class KeySplit(Split):
    layout = LAYOUT
    document: Sequences
    size: Sequences
    key: Sequences


class KeyExamples(Examples):
    def __init__(self, split, symbols, room):
        self.split, self.symbols, self.room = split, symbols, room
        self.sizes = np.minimum(split.document.sizes + split.size.sizes + 2, room)

    def segments(self, example):
        ends, document = np.cumsum(self.split.size[example]), self.split.document[example]
        tokens = np.insert(document.astype(np.int64), ends, self.symbols.marks["[key]"])[: self.room - 2]
        tokens = np.concatenate([[self.symbols.bos], tokens, [self.symbols.eos]])
        is_mark = tokens == self.symbols.marks["[key]"]
        marks = np.where(is_mark, np.cumsum(is_mark), 0)
        key = self.split.key[example]
        return [Segment(tokens, is_mark, {"marks": marks}, {"is_key": marks == (key[0] + 1 if len(key) else -1)})]


class KeyHead(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.score = nn.Linear(embed_dim, 1)
        initialize(self)

    def forward(self, features, example, num_examples, marks):
        return at_marks(self.score, features, example, marks)


class KeyPredictor:
    def __init__(self, folder, split):
        self.ids, self.found = KeySplit.lines(folder, split), {}

    def add(self, numbers, output, batch):
        for row, number in enumerate(numbers):
            own = output.example == row
            self.found[self.ids[number]] = int(output.number[own][output.logit[own].argmax()])

    def write(self, path):
        write_lines(path, [json.dumps({"key_sentence": self.found})])


@register_task("key_sentence", dataclass=DocumentTaskConfig)
class KeySentenceTask(DocumentTask):
    kind, layout, marks = "key_sentence", LAYOUT, (*MARKS, "[key]")

    def build_head(self, embed_dim, dropout):
        return KeyHead(embed_dim)

    def build_examples(self, folder, split, max_segments):
        return KeyExamples(KeySplit.open(folder, split), self.symbols, self.cfg.max_positions)

    def loss(self, output, target):
        losses = mark_losses(output, target["is_key"], int(output.example.max()) + 1)
        return losses.sum(), count_right_marks("accuracy", output, target["is_key"])

    def predictor(self, folder, split):
        return KeyPredictor(folder, split)

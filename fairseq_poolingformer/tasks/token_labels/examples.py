"""Documents with a label for each word: entities, as CoNLL-2003 has them, and any others."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Segment
from fairseq_poolingformer.tasks.shared.words import WordExamples, WordSplit
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import refuse


@dataclass(frozen=True)
class TokenLabelSplit(WordSplit):
    """One split; ``label`` has a number in the labels of ``corpus.json`` for each word, or nothing."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess token_labels",
        ids=("document",),
        numbers=("word", "sentence", "label"),
        texts=("id", "words"),
    )
    label: Sequences

    def check(self) -> None:
        """Raise ValueError where a document's words, pieces and labels disagree."""
        super().check()
        sizes = self.label.sizes
        refuse(self.label, (sizes != 0) & (sizes != self.word.sizes), "not one label for each word")


class TokenLabelExamples(WordExamples):
    """The documents of a split; the first piece of each word has its label.

    In a segment ``word`` is k at the first piece of a document's k-th word, counted from 1; ``label`` is one more than
    the label's number there, and ``begins`` is 1 at the first word of a sentence; all are 0 elsewhere.
    """

    split: TokenLabelSplit

    @property
    def known(self) -> np.ndarray:
        return self.split.label.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        starts, _ = self._word_borders(example)
        sentence, label = self.split.sentence[example], self.split.label[example]
        columns = np.zeros((3, len(self.split.document[example])), np.int64)
        columns[0, starts] = np.arange(len(starts)) + 1
        columns[1, starts] = label + 1 if len(label) else 0
        columns[2, starts[np.cumsum(sentence) - sentence]] = 1
        found = []
        for segment, place in zip(super().segments(example), itertools.pairwise(self._stretch(example)), strict=True):
            word, label, begins = np.pad(columns[:, slice(*place)], ((0, 0), (1, 1)))
            found.append(replace(segment, inputs={"word": word}, targets={"label": label, "begins": begins}))
        return found

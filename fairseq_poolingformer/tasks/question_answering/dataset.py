"""fairseq's dataset of questions with segments of their documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.tasks.question_answering.folder import QuestionAnsweringSplit
from fairseq_poolingformer.tasks.question_answering.labels import Answers, AnswerType, Label
from fairseq_poolingformer.tasks.question_answering.segments import (
    Segments,
    keep_negatives,
    paragraph_ids,
    visible_paragraphs,
)
from fairseq_poolingformer.training.sized_dataset import SizedDataset

TARGETS = ("start", "end", "paragraph", "answer_type")


class QuestionAnsweringDataset(SizedDataset):
    """Segments, read from a memory-mapped split one at a time.

    Args:
        split: questions and documents.
        segments: the segments that its documents are cut into.
        dictionary: gives ``<s>``, ``</s>`` and padding.
        answers: of the examples; None leaves every segment without a target.
        labels: (S,) of the segments: an epoch has the positive and the negative ones; None uses every segment.
        negative_share: the share of the negative segments that an epoch has, drawn anew for each.
        seed: of the draw.
        shuffle: order segments by chance among those of similar length.

    Raises:
        ValueError: ``negative_share`` is no share.
    """

    def __init__(
        self,
        split: QuestionAnsweringSplit,
        segments: Segments,
        dictionary: Dictionary,
        *,
        answers: Answers | None = None,
        labels: np.ndarray | None = None,
        negative_share: float = 1.0,
        seed: int = 1,
        shuffle: bool = False,
    ) -> None:
        super().__init__(segments.size, shuffle)
        if not 0 <= negative_share <= 1:
            raise ValueError(f"negative_share must be between 0 and 1, got {negative_share}")
        self.split, self.segments, self.dictionary = split, segments, dictionary
        self.answers, self.labels = answers, labels
        self.negative_share, self.seed, self.epoch = negative_share, seed, 1

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose negatives are drawn."""
        self.epoch = epoch

    def documents_of(self, index: int) -> list[int]:
        """The number of the example that a segment belongs to, in a list."""
        return [int(self.segments.example[index])]

    def used(self) -> np.ndarray:
        """Return the numbers of the segments that this epoch has, ascending."""
        if self.labels is None:
            return super().used()
        is_used = self.labels == Label.POSITIVE
        negative = np.flatnonzero(self.labels == Label.NEGATIVE)
        is_used[negative] = keep_negatives(self.segments, negative, self.negative_share, self.seed, self.epoch)
        return np.flatnonzero(is_used)

    def __getitem__(self, index: int) -> dict[str, Any]:
        segments, bos, eos = self.segments, self.dictionary.bos(), self.dictionary.eos()
        example = int(segments.example[index])
        first, end = int(segments.first_token[index]), int(segments.end_token[index])
        question = self.split.question[example][: segments.question_length[example]]
        paragraphs = self.split.paragraphs(example)
        first_row, end_row = visible_paragraphs(paragraphs, first, end)
        ids = np.zeros(segments.size[index], np.int64)
        start = len(question) + 3
        ids[start:-1] = paragraph_ids(paragraphs[first_row:end_row], first, end)
        document = self.split.document[example][first:end]
        has_text = np.zeros(len(ids), bool)
        has_text[start:-1] = self.split.start[example][first:end] < self.split.end[example][first:end]
        tokens = np.concatenate([[bos], question, [eos, eos], document, [eos]]).astype(np.int64)
        return {
            "id": index,
            "tokens": torch.from_numpy(tokens),
            "paragraph_ids": torch.from_numpy(ids),
            "has_text": torch.from_numpy(has_text),
            "document_start": start,
            "num_paragraphs": end_row - first_row,
            "first_paragraph": first_row,
            "document_has_paragraphs": len(paragraphs) > 0,
            "target": self._target(index, example, start - first, first_row),
        }

    def _target(self, index: int, example: int, shift: int, first_row: int) -> list[int]:
        """Return start, end, paragraph and type of the answer; document token k has the position k + ``shift``."""
        if self.answers is None or self.labels is None or self.labels[index] != Label.POSITIVE:
            return [0, 0, 0, int(AnswerType.NULL)]
        answers, answer_type = self.answers, int(self.answers.answer_type[example])
        row = int(answers.paragraph[example])
        paragraph = row - first_row + 1 if row >= 0 else 0
        if answer_type != AnswerType.SHORT:
            return [0, 0, paragraph, answer_type]
        start, end = int(answers.first_token[example]) + shift, int(answers.end_token[example]) - 1 + shift
        return [start, end, paragraph, answer_type]

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch, padded on the right.

        Args:
            samples: items of this dataset.

        Returns:
            ``net_input``: src_tokens (B, T); global_mask (B, T), True at ``<s>`` and the question; head_inputs, the
            head's arguments paragraph_ids (B, T), span_mask (B, T) and num_paragraphs. ``target``: (B,) for each of
            :data:`TARGETS`. ``has_text`` (B, T), True at document tokens that hold some text. ``first_paragraph`` (B,),
            the row of the paragraph with number 1. ``document_start`` (B,), the position of the first document token.
            ``document_has_paragraphs`` (B,).
        """
        if not samples:
            return {}
        tokens = _pad([sample["tokens"] for sample in samples], self.dictionary.pad())
        sizes = torch.tensor([[len(sample["tokens"])] for sample in samples])
        starts = torch.tensor([[sample["document_start"]] for sample in samples])
        positions = torch.arange(tokens.size(1)).unsqueeze(0)
        targets = torch.tensor([sample["target"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(sizes.sum()),
            "net_input": {
                "src_tokens": tokens,
                "global_mask": positions < starts - 2,
                "head_inputs": {
                    "paragraph_ids": _pad([sample["paragraph_ids"] for sample in samples], 0),
                    "span_mask": (positions == 0) | ((positions >= starts) & (positions < sizes - 1)),
                    "num_paragraphs": max(sample["num_paragraphs"] for sample in samples),
                },
            },
            "has_text": _pad([sample["has_text"] for sample in samples], False),
            "first_paragraph": torch.tensor([sample["first_paragraph"] for sample in samples]),
            "document_start": starts.squeeze(1),
            "document_has_paragraphs": torch.tensor([sample["document_has_paragraphs"] for sample in samples]),
            "target": dict(zip(TARGETS, targets.unbind(1), strict=True)),
        }


def _pad(rows: list[Tensor], value: int) -> Tensor:
    return pad_sequence(rows, batch_first=True, padding_value=value)

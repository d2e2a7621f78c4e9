"""fairseq's ``--task question_answering``: Natural Questions and TyDi QA over whole documents."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import register_task
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.question_answering.data import (
    PARTIAL_SEGMENTS,
    Answers,
    AnswerType,
    Label,
    LabelCounts,
    QuestionAnsweringSplit,
    SegmentLimits,
    Segments,
    cut_into_segments,
    keep_negatives,
    label_segments,
    paragraph_ids,
    read_answers,
    visible_paragraphs,
)
from fairseq_poolingformer.tasks.question_answering.head import AnswerLogits, QuestionAnsweringHead
from fairseq_poolingformer.tasks.shared.base_task import OneDictionaryConfig, OneDictionaryTask, check_encoder
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion, check_weights
from fairseq_poolingformer.training.sized_dataset import SizedDataset

logger = logging.getLogger(__name__)

TARGETS = ("start", "end", "paragraph", "answer_type")


@dataclass
class QuestionAnsweringCriterionConfig(FairseqDataclass):
    span_loss_weight: float = option(1.0, "weight of the span's loss, the mean of start and end; 2: their sum")
    paragraph_loss_weight: float = option(1.0, "weight of the paragraph's loss")
    type_loss_weight: float = option(1.0, "weight of the answer type's loss")


@register_criterion("question_answering", dataclass=QuestionAnsweringCriterionConfig)
class QuestionAnsweringCriterion(DocumentTaskCriterion):
    """The weighted sum of a segment's cross entropies: span, (start + end) / 2; paragraph; answer type."""

    # logs its parts in bits, and shares of right ones; ``answered_`` counts segments that have one to find
    logged = (
        *("loss", "span_loss", "paragraph_loss", "type_loss", "span_accuracy", "paragraph_accuracy", "type_accuracy"),
        *("answered_span_accuracy", "answered_paragraph_accuracy"),
    )

    def __init__(
        self, task, span_loss_weight: float = 1.0, paragraph_loss_weight: float = 1.0, type_loss_weight: float = 1.0
    ) -> None:
        super().__init__(task)
        self.weights = (span_loss_weight, paragraph_loss_weight, type_loss_weight)
        check_weights(dict(zip(("span", "paragraph", "type"), self.weights, strict=True)))

    def forward(self, model, sample: dict[str, Any], reduce: bool = True):
        """Compute the loss of a batch of ``QuestionAnsweringDataset``, a sum whatever ``reduce`` is."""
        logits, _ = model(**sample["net_input"])
        target = sample["target"]
        start, end, paragraph, answer_type = (
            F.cross_entropy(getattr(logits, name), target[name], reduction="sum") for name in TARGETS
        )
        parts = {"span_loss": (start + end) / 2, "paragraph_loss": paragraph, "type_loss": answer_type}
        loss = sum(weight * part for weight, part in zip(self.weights, parts.values(), strict=True))
        count = sample["nsentences"]
        logged = {"loss": loss.detach()} | {name: part.detach() for name, part in parts.items()}
        logged |= {"ntokens": sample["ntokens"], "nsentences": count, "sample_size": count}
        return loss, count, logged | count_correct(logits, target)


@torch.no_grad()
def count_correct(logits: AnswerLogits, target: dict[str, Tensor]) -> dict[str, Tensor]:
    """Count right answers, as ``_NAME_accuracy_correct`` and ``_NAME_accuracy_total`` on the device."""
    is_right = {
        "type": logits.answer_type.argmax(-1) == target["answer_type"],
        "paragraph": logits.paragraph.argmax(-1) == target["paragraph"],
        "span": (logits.start.argmax(-1) == target["start"]) & (logits.end.argmax(-1) == target["end"]),
    }
    counts = {}
    for name, right in is_right.items():
        counts |= {f"_{name}_accuracy_correct": right.sum(), f"_{name}_accuracy_total": torch.ones_like(right).sum()}
    for name, asked in (("paragraph", target["paragraph"] > 0), ("span", target["start"] > 0)):
        right = is_right[name] & asked
        counts |= {f"_answered_{name}_accuracy_correct": right.sum(), f"_answered_{name}_accuracy_total": asked.sum()}
    return counts


class QuestionAnsweringDataset(SizedDataset):
    """Segments, read from a memory-mapped split one at a time."""

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
        self.epoch = epoch

    def used(self) -> np.ndarray:
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


@dataclass
class QuestionAnsweringConfig(OneDictionaryConfig):
    max_positions: int = option(4096, "tokens of a segment, question and special symbols included")
    doc_stride: int = option(1568, "document tokens between the beginnings of two segments of a document")
    max_question_length: int = option(64, "tokens that longer questions are cut to")
    negative_share: float = option(
        0.5, "share of the segments without an answer that an epoch trains on, drawn anew for each"
    )
    partial_segments: ChoiceEnum(list(PARTIAL_SEGMENTS)) = option(
        "skip",
        "segments that see a part of the answer only: skip leaves them out of training, negative trains "
        "them to find no answer (Alberti et al. 2019)",
    )


@register_task("question_answering", dataclass=QuestionAnsweringConfig)
class QuestionAnsweringTask(OneDictionaryTask):
    """Answers questions in documents cut into segments (ICML 2021, §3.2); ``<s>`` and the question are global."""

    cfg: QuestionAnsweringConfig
    layout = QuestionAnsweringSplit.layout
    criterion = "question_answering"

    def __init__(self, cfg: QuestionAnsweringConfig, dictionary: Dictionary) -> None:
        dictionary.add_symbol("<mask>")  # as RoBERTa's and XLM-R's embeddings have it
        super().__init__(cfg, dictionary)
        self.limits = SegmentLimits(cfg.max_positions, cfg.doc_stride, cfg.max_question_length)

    def max_positions(self) -> int:
        return self.limits.max_positions

    def build_model(self, cfg, from_checkpoint: bool = False):
        model = super().build_model(cfg, from_checkpoint)
        check_encoder(model, "question_answering", self.limits.max_positions)
        head = QuestionAnsweringHead(model.args.encoder_embed_dim, model.args.dropout)
        model.register_head("question_answering", head)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        is_training = split == self.cfg.train_subset
        data = QuestionAnsweringSplit.open(self.folder(split, epoch), split)
        segments = self.cut(split, data, self.limits)
        answers = read_answers(data)
        labels = label_segments(segments, answers, PARTIAL_SEGMENTS[self.cfg.partial_segments])
        counts = LabelCounts.of(segments, answers, labels)
        logger.info(
            "%s: %d of %d questions have an answer; segments: %d with it, %d with a part of it (left out), %d without",
            *(split, counts.answers, len(data), counts.positive, counts.partial, counts.negative),
        )
        if counts.without_segment:
            logger.warning(
                "%s: %d answers fit in no segment; a larger --max-positions or smaller --doc-stride would help",
                *(split, counts.without_segment),
            )
        self.datasets[split] = QuestionAnsweringDataset(
            data,
            segments,
            self.dictionary,
            answers=answers,
            labels=labels,
            negative_share=self.cfg.negative_share if is_training else 1.0,
            seed=self.cfg.seed,
            shuffle=is_training,
        )

    def load_whole(self, split: str, limits: SegmentLimits) -> QuestionAnsweringDataset:
        """Load every segment of a split, without targets, to predict answers from."""
        data = QuestionAnsweringSplit.open(self.data_folder, split)
        return QuestionAnsweringDataset(data, self.cut(split, data, limits), self.dictionary)

    @staticmethod
    def cut(split: str, data: QuestionAnsweringSplit, limits: SegmentLimits) -> Segments:
        """Cut a split's documents into segments, and log how many questions are cut."""
        too_long = int((data.question.sizes > limits.max_question_length).sum())
        if too_long:
            logger.info("%s: %d questions cut to %d tokens", split, too_long, limits.max_question_length)
        return cut_into_segments(data.question.sizes, data.document.sizes, limits)

"""fairseq's ``--task question_answering``: Natural Questions and TyDi QA over whole documents."""

import logging
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_poolingformer.tasks.question_answering.dataset import QuestionAnsweringDataset
from fairseq_poolingformer.tasks.question_answering.folder import QuestionAnsweringSplit
from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from fairseq_poolingformer.tasks.question_answering.labels import (
    PARTIAL_SEGMENTS,
    LabelCounts,
    label_segments,
    read_answers,
)
from fairseq_poolingformer.tasks.question_answering.segments import SegmentLimits, Segments, cut_into_segments
from fairseq_poolingformer.tasks.shared.one_dictionary import OneDictionaryConfig, OneDictionaryTask, check_encoder
from fairseq_poolingformer.text.data_folder import QUESTIONS

logger = logging.getLogger(__name__)


@dataclass
class QuestionAnsweringConfig(OneDictionaryConfig):
    max_positions: int = field(
        default=4096, metadata={"help": "tokens of a segment, question and special symbols included"}
    )
    doc_stride: int = field(
        default=1568, metadata={"help": "document tokens between the beginnings of two segments of a document"}
    )
    max_question_length: int = field(default=64, metadata={"help": "tokens that longer questions are cut to"})
    negative_share: float = field(
        default=0.5,
        metadata={"help": "share of the segments without an answer that an epoch trains on, drawn anew for each"},
    )
    partial_segments: ChoiceEnum(list(PARTIAL_SEGMENTS)) = field(
        default="skip",
        metadata={
            "help": "segments that see a part of the answer only: skip leaves them out of training, negative trains "
            "them to find no answer (Alberti et al. 2019)"
        },
    )


@register_task("question_answering", dataclass=QuestionAnsweringConfig)
class QuestionAnsweringTask(OneDictionaryTask):
    """Finds the answers to questions in documents that are cut into overlapping segments (ICML 2021, §3.2).

    ``<s>`` and the question's tokens are global. The task gives the model a :class:`QuestionAnsweringHead`.
    """

    cfg: QuestionAnsweringConfig
    layout = QUESTIONS
    criterion = "question_answering"

    def __init__(self, cfg: QuestionAnsweringConfig, dictionary: Dictionary) -> None:
        dictionary.add_symbol("<mask>")  # as RoBERTa's and XLM-R's embeddings have it
        super().__init__(cfg, dictionary)
        self.limits = SegmentLimits(cfg.max_positions, cfg.doc_stride, cfg.max_question_length)

    def max_positions(self) -> int:
        """Return the most tokens of a segment."""
        return self.limits.max_positions

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model and add the question answering head.

        Raises:
            ValueError: the architecture takes no such head, or takes fewer tokens than a segment has.
        """
        model = super().build_model(cfg, from_checkpoint)
        check_encoder(model, "question_answering", self.limits.max_positions)
        model.register_head(
            "question_answering", QuestionAnsweringHead(model.args.encoder_embed_dim, model.args.dropout)
        )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split with labels.

        Args:
            split: its name.
            epoch: chooses one of several data folders, in training.
            combine: unused.
            kwargs: unused.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: the folder is damaged.
        """
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
        """Load every segment of a split, without targets, to predict answers from.

        Args:
            split: its name.
            limits: the sizes of segments.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: the folder is damaged.
        """
        data = QuestionAnsweringSplit.open(self.data_folder, split)
        return QuestionAnsweringDataset(data, self.cut(split, data, limits), self.dictionary)

    @staticmethod
    def cut(split: str, data: QuestionAnsweringSplit, limits: SegmentLimits) -> Segments:
        """Cut a split's documents into segments, and log how many questions are cut."""
        too_long = int((data.question.sizes > limits.max_question_length).sum())
        if too_long:
            logger.info("%s: %d questions cut to %d tokens", split, too_long, limits.max_question_length)
        return cut_into_segments(data.question.sizes, data.document.sizes, limits)

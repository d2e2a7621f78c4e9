"""Question answering over whole documents: Natural Questions and TyDi QA."""

import logging
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from omegaconf import II, MISSING

from fairseq_poolingformer.data.qa_dataset import QuestionAnsweringDataset
from fairseq_poolingformer.qa.folder import QuestionAnsweringSplit
from fairseq_poolingformer.qa.labels import LabelCounts, label_segments, read_answers
from fairseq_poolingformer.qa.segments import SegmentLimits, Segments, cut_into_segments
from fairseq_poolingformer.tasks.one_dictionary import OneDictionaryTask
from fairseq_poolingformer.text.data_folder import QUESTIONS

logger = logging.getLogger(__name__)


@dataclass
class QuestionAnsweringConfig(FairseqDataclass):
    data: str = field(
        default=MISSING,
        metadata={"help": "data folder; of several, separated by colons, each epoch trains on the next one"},
    )
    max_positions: int = field(
        default=4096, metadata={"help": "tokens of a segment, question and special symbols included"}
    )
    doc_stride: int = field(
        default=1568, metadata={"help": "document tokens between the beginnings of two segments of a document"}
    )
    max_question_length: int = field(default=64, metadata={"help": "tokens that longer questions are cut to"})
    negative_share: float = field(
        default=0.5,
        metadata={"help": "share of the segments without an answer that an epoch trains on, drawn anew in each"},
    )
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")


@register_task("question_answering", dataclass=QuestionAnsweringConfig)
class QuestionAnsweringTask(OneDictionaryTask):
    """Answers of questions in documents that are cut into overlapping segments (ICML 2021, §3.2).

    ``<s>`` and the question's tokens are global. The model gets a
    :class:`~fairseq_poolingformer.modules.question_answering_head.QuestionAnsweringHead`.
    """

    cfg: QuestionAnsweringConfig
    layout = QUESTIONS

    def __init__(self, cfg: QuestionAnsweringConfig, dictionary: Dictionary) -> None:
        dictionary.add_symbol("<mask>")  # as RoBERTa's and XLM-R's embeddings have it
        super().__init__(cfg, dictionary)
        self.limits = SegmentLimits(cfg.max_positions, cfg.doc_stride, cfg.max_question_length)

    def max_positions(self) -> int:
        """The most tokens of a segment."""
        return self.limits.max_positions

    def build_model(self, cfg, from_checkpoint: bool = False):
        """The model with a question answering head.

        Raises:
            ValueError: the architecture has no such head, or takes fewer tokens than a segment has.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "register_question_answering_head"):
            raise ValueError(
                f"--task question_answering needs an encoder such as --arch poolingformer_roberta_base, "
                f"and {type(model).__name__} is none"
            )
        if model.max_positions() < self.limits.max_positions:
            raise ValueError(
                f"--max-positions {self.limits.max_positions}, but the model takes {model.max_positions()} tokens"
            )
        model.register_question_answering_head()
        # what gets no gradient would make DistributedDataParallel wait for it; the shared embedding gets some
        embedding = model.encoder.sentence_encoder.embed_tokens.weight
        for parameter in model.encoder.lm_head.parameters():
            if parameter is not embedding:
                parameter.requires_grad_(False)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a labelled split; segments that see a part of an answer only are left out.

        Args:
            split: its name.
            epoch: which of several data folders, in training.
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
        labels = label_segments(segments, answers)
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
        """Every segment of a split, without targets: what answers are predicted from.

        Args:
            split: its name.
            limits: how to cut documents.

        Raises:
            FileNotFoundError: the folder has no such split.
            ValueError: the folder is damaged.
        """
        data = QuestionAnsweringSplit.open(self.data_folder, split)
        return QuestionAnsweringDataset(data, self.cut(split, data, limits), self.dictionary)

    @staticmethod
    def cut(split: str, data: QuestionAnsweringSplit, limits: SegmentLimits) -> Segments:
        """Cut a split's documents, and log how many questions are cut as well."""
        too_long = int((data.question.sizes > limits.max_question_length).sum())
        if too_long:
            logger.info("%s: %d questions cut to %d tokens", split, too_long, limits.max_question_length)
        return cut_into_segments(data.question.sizes, data.document.sizes, limits)

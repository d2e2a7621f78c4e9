"""fairseq's ``--task coreference``: OntoNotes, in the format of CoNLL-2012."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.coreference.data import CoreferenceExamples, CoreferenceSplit, write_document
from fairseq_poolingformer.tasks.coreference.head import Antecedents, CoreferenceHead, marginal_loss, mention_loss
from fairseq_poolingformer.tasks.coreference.scores import CoreferenceScore, RecallPrecision, score_document
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.text.atomic_write import write_lines

SEGMENT_DISTANCES = 10  # told apart where --max-segments does not bound them
METRICS = ("mentions", "muc", "b_cubed", "ceaf_e")
COUNTS = tuple(counted.name for counted in fields(RecallPrecision))


class CoreferencePredictor:
    """The entities of each document, written in the column format."""

    def __init__(self, folder: Path, split: str) -> None:
        self._names, self._words = (CoreferenceSplit.lines(folder, split, text) for text in ("id", "words"))
        self._sentence = CoreferenceSplit.open(folder, split).sentence
        self._clusters: dict[int, list[list[tuple[int, int]]]] = {}

    def add(self, numbers: list[int], output: Sequence[Sequence[Tensor]], batch: dict[str, Any]) -> None:
        """Take the fields of :class:`Antecedents` of each document."""
        for number, scored in zip(numbers, output, strict=True):
            self._clusters[number] = Antecedents(*scored).clusters()

    def write(self, path: Path) -> None:
        documents = (
            write_document(self._names[n], self._words[n].split(" "), self._sentence[n].tolist(), clusters)
            for n, clusters in sorted(self._clusters.items())
        )
        write_lines(path, itertools.chain.from_iterable(documents))


@dataclass
class CoreferenceConfig(DocumentTaskConfig):
    max_span_width: int = option(30, "words of a mention at most")
    span_ratio: float = option(0.4, "spans kept as possible mentions, for each word")
    max_antecedents: int = option(50, "antecedents that the coarse score keeps of a span")
    coreference_depth: int = option(2, "rounds of fine scores; in between, antecedents refine the spans; 1: none do")
    head_hidden: int = option(3000, "width of the head's hidden layers")
    head_dropout: float = option(0.3, "dropout in the head")
    mention_loss_weight: float = option(
        0.0, "weight of a binary cross entropy of mention scores, which small corpora need; the papers: 0"
    )


@register_task("coreference", dataclass=CoreferenceConfig)
class CoreferenceTask(DocumentTask):
    """Finds the mentions of a document and the entities that they name (Longformer, §6.1; Joshi et al., 2019)."""

    # the loss is a sum over spans; ``conll_f1`` is the mean F1 of MUC, B³ and CEAF-φ₄

    cfg: CoreferenceConfig
    kind = "coreference"
    layout = CoreferenceSplit.layout
    predictor = CoreferencePredictor
    logged = ("mentions_f1", "conll_f1")
    uses_global_tokens = False

    def __init__(self, cfg: CoreferenceConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        if not 0 <= cfg.mention_loss_weight < math.inf:
            raise ValueError(f"--mention-loss-weight must be 0 or more, got {cfg.mention_loss_weight}")

    def build_head(self, embed_dim: int, dropout: float) -> CoreferenceHead:
        cfg = self.cfg
        return CoreferenceHead(
            embed_dim,
            segment_distances=cfg.max_segments or SEGMENT_DISTANCES,
            max_span_width=cfg.max_span_width,
            span_ratio=cfg.span_ratio,
            max_antecedents=cfg.max_antecedents,
            depth=cfg.coreference_depth,
            hidden=cfg.head_hidden,
            dropout=cfg.head_dropout,
            train_all_spans=cfg.mention_loss_weight > 0,
        )

    def build_examples(self, folder: Path, split: str, max_segments: int) -> CoreferenceExamples:
        names = CoreferenceSplit.lines(folder, split)
        arrays = CoreferenceSplit.open(folder, split)
        return CoreferenceExamples(arrays, names, **self.reading(max_segments), seed=self.cfg.seed)

    def loss(self, output: list[Antecedents], target: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """−log Σ P of the right antecedents; in validation also the counts of the metrics."""
        loss = marginal_loss(output, target["mentions"])
        if self.cfg.mention_loss_weight:
            loss = loss + self.cfg.mention_loss_weight * mention_loss(output, target["mentions"])
        if torch.is_grad_enabled():
            return loss, {}
        total = CoreferenceScore()
        for one, mentions in zip(output, target["mentions"], strict=True):
            true: dict[int, list[tuple[int, int]]] = {}
            for start, end, entity in mentions.tolist():
                true.setdefault(entity, []).append((start, end))
            total += score_document(list(true.values()), one.clusters())
        counts = {f"_{name}_{count}": getattr(getattr(total, name), count) for name in METRICS for count in COUNTS}
        return loss, {name: torch.tensor(float(value), device=loss.device) for name, value in counts.items()}

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion) -> None:
        """Log what the criterion logs; in validation also F1, of all documents together."""
        super().reduce_metrics(logging_outputs, criterion)
        if not any(f"_muc_{COUNTS[0]}" in log for log in logging_outputs):
            return
        for name in METRICS:
            for count in COUNTS:
                key = f"_{name}_{count}"
                metrics.log_scalar_sum(key, float(sum(log.get(key, 0) for log in logging_outputs)))
        metrics.log_derived("mentions_f1", lambda meters: _f1(meters, ["mentions"]))
        metrics.log_derived("conll_f1", lambda meters: _f1(meters, METRICS[1:]))


def _f1(meters, names: Iterable[str]) -> float:
    """The mean F1 × 100 of metrics whose counts the meters hold."""
    scores = [100 * RecallPrecision(*(meters[f"_{name}_{count}"].sum for count in COUNTS)).f1 for name in names]
    return round(sum(scores) / len(scores), 2)

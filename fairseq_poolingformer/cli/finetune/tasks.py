"""The two tasks: features of examples, predictions from a model's outputs, official figures, baselines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn
from transformers import DataCollatorForSeq2Seq, DataCollatorWithPadding, GenerationConfig

from fairseq_poolingformer.cli.finetune.base import LABELS, SUMMARIES, Base
from fairseq_poolingformer.huggingface.in_one_call import of_summaries
from fairseq_poolingformer.tasks.classification import data as of_labels
from fairseq_poolingformer.tasks.shared.estimates import intervals
from fairseq_poolingformer.tasks.summarization.rouge import (
    ROUGE_TYPES,
    UNSPACED,
    bootstrap,
    count_words,
    lead_baseline,
    rouge_scores,
    unread,
)

IGNORED = -100  # a label that has no part in a loss
BEAMS, MOST_WRITTEN = 4, 1024  # of a summary; tokens
# scikit-learn's words, and each character of a script without spaces
TOKENS = rf"(?u)[{UNSPACED}]|\b(?:(?![{UNSPACED}])\w){{2,}}"

Figures = dict[str, dict[str, float]]  # name -> mean, low, high


@dataclass
class Task:
    """A task; predictions are a list that has one for each example."""

    base: Base
    length: int  # tokens of an input
    names: Sequence[str] = ()  # of labels; in the model's order, once there is one
    train: Sequence[Any] = ()  # examples that a training learns from
    batch: ClassVar[int]  # examples of an update
    lr: ClassVar[float]  # for such a batch
    metrics: ClassVar[tuple[str, ...]]  # figures that may choose the checkpoint; the first does
    key: ClassVar[str]  # of a prediction in its line of JSON
    epochs: ClassVar[int] = 10

    def start(self, system: str, options: Mapping[str, Any]) -> nn.Module:
        """The model before its training."""
        model = self.base.build(system, self.length, list(self.names))
        self.names = list(model.config.id2label.values())
        return model

    @property
    def tokenizer(self) -> Any:
        """The model's."""
        return self.base.tokenizer

    @property
    def prefix(self) -> str:
        """The text before each document, as of T5."""
        return ""

    def sizes(self, examples: Sequence[Any]) -> np.ndarray:
        """The tokens of each document."""
        texts = [self.prefix + example.texts[0] for example in examples]
        return np.array([len(ids) for ids in self.tokenizer(texts, verbose=False)["input_ids"]])

    def cut(self, sizes: np.ndarray) -> str:
        """A sentence on documents of which the model does not read the end; empty without any."""
        if not (longer := int((sizes > self.length).sum())):
            return ""
        return f"{longer:,} of {len(sizes):,} documents are longer than {self.length:,} tokens; their rest is cut off"

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        """The lines of a file of predictions, as poolingformer score reads it."""
        pairs = zip(examples, predictions, strict=True)
        return [json.dumps({"id": example.id, self.key: prediction}) for example, prediction in pairs]


class Summaries(Task):
    """Texts for texts."""

    batch, lr, key, metrics = 32, 1e-4, "prediction", ("loss", *ROUGE_TYPES)

    @property
    def prefix(self) -> str:
        return of_summaries(self.base.config)[0]

    @cached_property
    def target_sizes(self) -> list[int]:
        """Tokens of the summaries of train."""
        return [len(self.tokenizer(text_target=example.texts[1])["input_ids"]) for example in self.train]

    @cached_property
    def any_script(self) -> bool:
        """Whether ROUGE compares words of any script, as rouge-score does not read most summaries."""
        return 2 * unread([example.texts[1] for example in self.train]) > len(self.train)

    @property
    def target_length(self) -> int:
        """Tokens of the longest summary that is learned."""
        config = self.base.config
        names = ("max_decoder_position_embeddings", "max_position_embeddings")
        most = next((value for name in names if (value := getattr(config, name, None))), MOST_WRITTEN)
        return min(max(self.target_sizes) + 8, most, MOST_WRITTEN)

    def start(self, system: str, options: Mapping[str, Any]) -> nn.Module:
        model = super().start(system, options)
        ids = {
            name: value for name, value in model.generation_config.to_diff_dict().items() if name.endswith("token_id")
        }
        beams = options.get("generation_num_beams") or BEAMS
        most = options.get("generation_max_length") or self.target_length
        model.generation_config = GenerationConfig(**ids, num_beams=beams, max_length=most, early_stopping=beams > 1)
        if self.any_script:
            print("  rouge-score reads a–z and 0–9 alone: ROUGE here compares words of any script, without stemming")
        if longer := sum(size > self.target_length for size in self.target_sizes):
            total = len(self.target_sizes)
            print(f"  {longer:,} of {total:,} summaries are cut to {self.target_length:,} tokens, without an end")
        return model

    def collate(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        """The collator, which makes a batch of features."""
        return DataCollatorForSeq2Seq(self.tokenizer, model=model)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        """A model's inputs and labels; a summary that is cut has no end mark, so that none is learned there."""
        options = {"truncation": True, "max_length": self.length, "return_token_type_ids": False}
        return [
            {
                **self.tokenizer(self.prefix + example.texts[0], **options),
                "labels": self.tokenizer(text_target=example.texts[1], verbose=False)["input_ids"][
                    : self.target_length
                ],
            }
            for example in examples
        ]

    def decode(self, outputs: Any) -> list[str]:
        """The predictions that outputs say."""
        tokens = np.where(outputs == IGNORED, self.tokenizer.pad_token_id, outputs)
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]

    def evaluate(self, examples: Sequence[Any], predictions: list[str]) -> Figures:
        """The official figures with their 95% intervals."""
        estimates = bootstrap(
            rouge_scores(predictions, [example.texts[1] for example in examples], any_script=self.any_script)
        )
        return {
            name: {"mean": 100 * estimate.f1.mean, "low": 100 * estimate.f1.low, "high": 100 * estimate.f1.high}
            for name, estimate in estimates.items()
        }

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        """Predictions without a neural network, by name."""
        words = max(1, round(statistics.median(count_words(example.texts[1]) for example in self.train)))
        return {f"first {words} words": [lead_baseline(example.texts[0], words=words) for example in examples]}


class Labels(Task):
    """One label for a text."""

    batch, lr, key, metrics = 16, 5e-5, "label", ("accuracy", "macro_f1", "loss")

    def collate(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        """The collator, which makes a batch of features."""
        return DataCollatorWithPadding(self.tokenizer)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        """A model's inputs, and labels where they are known."""
        numbers = {name: place for place, name in enumerate(self.names)}
        options = {"truncation": True, "max_length": self.length}
        return [
            {
                **self.tokenizer(example.texts[0], **options),
                **({"labels": numbers.get(example.label, IGNORED)} if hasattr(example, "label") else {}),
            }
            for example in examples
        ]

    def decode(self, outputs: Any) -> list[str]:
        """The predictions that outputs say."""
        return [self.names[int(place)] for place in np.argmax(outputs, -1)]

    def evaluate(self, examples: Sequence[Any], predictions: list[str]) -> Figures:
        """The official figures with their 95% intervals."""
        predicted = {example.id: label for example, label in zip(examples, predictions, strict=True)}
        figures = of_labels.figures({example.id: example.label for example in examples}, predicted)
        ranges = intervals(figures)
        return {
            name: {"mean": float(value), **dict(zip(("low", "high"), ranges.get(name, ()), strict=False))}
            for name, value in figures.items()
            if isinstance(value, float)
        }

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        """Predictions without a neural network, by name."""
        models = {"most frequent label": DummyClassifier(), "TF-IDF, linear": LogisticRegression(max_iter=1000, C=10)}
        tfidf = TfidfVectorizer(sublinear_tf=True, token_pattern=TOKENS)
        rows = tfidf.fit_transform(example.texts[0] for example in self.train)
        labels, others = (
            [example.label for example in self.train],
            tfidf.transform(example.texts[0] for example in examples),
        )
        return {name: list(map(str, model.fit(rows, labels).predict(others))) for name, model in models.items()}


TASKS: dict[str, type[Task]] = {SUMMARIES: Summaries, LABELS: Labels}

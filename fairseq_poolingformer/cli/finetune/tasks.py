"""What data are for: how examples are encoded, what a model's outputs say of them, official figures, baselines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from torch import nn
from transformers import (
    BatchEncoding,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    GenerationConfig,
)

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.huggingface.in_one_call import ANSWER_TOKENS, best_span, of_summaries, shared_tokens
from fairseq_poolingformer.tasks.classification import data as of_labels
from fairseq_poolingformer.tasks.shared.estimates import intervals
from fairseq_poolingformer.tasks.summarization.rouge import bootstrap, lead_baseline, rouge_scores, split_sentences
from fairseq_poolingformer.tasks.triviaqa import squad
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL

IGNORED = -100  # a label that has no part in a loss
BEAMS, MOST_WRITTEN = 4, 1024  # of a summary; tokens
QUESTION_WORDS = 64  # the most that are read of a question

Figures = dict[str, dict[str, float]]  # name -> mean, low, high


@dataclass
class Task:
    """A task; predictions are a list that has one for each example.

    Each has ``features``: the inputs of examples or of their segments, with labels; ``decode``: the predictions that
    outputs say; ``figures``: the official ones; ``baselines``: predictions without a neural network, by name.

    Attributes:
        batch, lr, epochs: of a training; the rate is for that many examples an update.
        best: the figure on validation that chooses the checkpoint.
        cut: what becomes of the rest of a document that is longer than the model.
    """

    data: Data
    base: Base
    length: int  # tokens of an input
    batch: ClassVar[int] = 16
    lr: ClassVar[float] = 5e-5
    epochs: ClassVar[int] = 10
    best: ClassVar[str] = "loss"
    cut: ClassVar[str] = "is read in segments"
    collator: ClassVar[type] = DataCollatorWithPadding

    def __post_init__(self) -> None:
        self.tokenizer, self.names = self.base.tokenizer, self.data.labels  # in the model's order, once there is one

    def start(self, system: str, given: Mapping[str, Any]) -> nn.Module:
        """The model before its training."""
        model = self.base.build(system, self.length, self.data.labels, self.data.problem)
        self.names = list(model.config.id2label.values())
        return model

    def collate(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        """What makes a batch of features."""
        return self.collator(self.tokenizer)

    def tune(self, model: nn.Module, predict: Callable[[str], list]) -> None:
        """Choose after the training what else is chosen on validation."""

    def smaller(self, logits: Any, labels: Any) -> Any:
        """What of a batch's outputs :meth:`decode` needs."""
        return logits[0] if isinstance(logits, tuple) else logits  # BART's kin return their states, too

    def segments(self, *texts: Any, **options: Any) -> Iterator[tuple[BatchEncoding, int, dict[str, Any]]]:
        """All segments of a document, the number of each, and a model's inputs of it."""
        options |= {"return_overflowing_tokens": True, "return_offsets_mapping": True}
        found = self.tokenizer(*texts, max_length=self.length, stride=shared_tokens(self.length), **options)
        for row in range(len(found["input_ids"])):
            yield found, row, {name: found[name][row] for name in self.tokenizer.model_input_names if name in found}

    def evaluate(self, split: str, predictions: list) -> Figures:
        """The official figures of a split with their 95% intervals."""
        figures = self.figures(self.data.splits[split], predictions)
        found = intervals(figures)
        return {
            name: {"mean": float(value), **dict(zip(("low", "high"), found.get(name, ()), strict=False))}
            for name, value in figures.items()
            if isinstance(value, float)
        }

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        """The lines of a file of predictions, as poolingformer score reads it."""
        key = "prediction" if isinstance(self, Summaries) else "label"
        return [json.dumps({"id": one.id, key: found}) for one, found in zip(examples, predictions, strict=True)]


class Summaries(Task):
    """Texts for texts."""

    batch, lr, cut = 32, 1e-4, "is cut off"

    @cached_property
    def target_length(self) -> int:
        """Tokens of the longest summary that is learned."""
        texts = [one.texts[1] for one in self.data.splits["train"][:1000]]
        longest = max(map(len, self.tokenizer(text_target=texts)["input_ids"]))
        config = self.base.config
        names = ("max_decoder_position_embeddings", "max_position_embeddings")
        most = next((value for name in names if (value := getattr(config, name, None))), MOST_WRITTEN)
        return min(longest + 8, most, MOST_WRITTEN)

    def start(self, system: str, given: Mapping[str, Any]) -> nn.Module:
        model = super().start(system, given)
        ids = {name: one for name, one in model.generation_config.to_diff_dict().items() if name.endswith("token_id")}
        beams = given.get("generation_num_beams") or BEAMS
        most = given.get("generation_max_length") or self.target_length
        model.generation_config = GenerationConfig(**ids, num_beams=beams, max_length=most, early_stopping=beams > 1)
        return model

    def collate(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        return DataCollatorForSeq2Seq(self.tokenizer, model=model)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        prefix, _ = of_summaries(self.base.config)
        cut = {"truncation": True, "max_length": self.length, "return_token_type_ids": False}
        written = {"truncation": True, "max_length": self.target_length}
        return [
            {
                **self.tokenizer(prefix + one.texts[0], **cut),
                "labels": self.tokenizer(text_target=one.texts[1], **written)["input_ids"],
            }
            for one in examples
        ]

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list[str]:
        tokens = np.where(outputs == IGNORED, self.tokenizer.pad_token_id, outputs)
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]

    def evaluate(self, split: str, predictions: list[str]) -> Figures:
        estimates = bootstrap(rouge_scores(predictions, [example.texts[1] for example in self.data.splits[split]]))
        return {
            name: {"mean": 100 * rouge.f1.mean, "low": 100 * rouge.f1.low, "high": 100 * rouge.f1.high}
            for name, rouge in estimates.items()
        }

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        words = max(1, round(statistics.median(len(one.texts[1].split()) for one in self.data.splits["train"])))
        return {f"first {words} words": [lead_baseline(one.texts[0], words=words) for one in examples]}


class Labels(Task):
    """A label, several, or an amount for a text or two."""

    cut = "is cut off"

    @property
    def best(self) -> str:
        """The figure that chooses the checkpoint."""
        return {AMOUNT: "loss", SEVERAL: "f1"}.get(self.data.problem, "accuracy")

    def _wanted(self, one: Any) -> float | list[float] | int:
        if self.data.problem == AMOUNT:
            return float(one.label)
        if self.data.problem == SEVERAL:
            return [float(name in _names(one.label)) for name in self.names]
        return self.names.index(one.label) if one.label in self.names else IGNORED  # of validation alone

    def features(self, examples: Sequence[Any]) -> list[dict]:
        cut = {"truncation": True, "max_length": self.length}
        return [
            {**self.tokenizer(*one.texts, **cut), **({} if one.label is None else {"labels": self._wanted(one)})}
            for one in examples
        ]

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list:
        if self.data.problem == AMOUNT:
            return [float(value) for value in np.reshape(outputs, -1)]
        if self.data.problem == SEVERAL:
            return [[self.names[place] for place in np.flatnonzero(row > 0)] for row in outputs]
        return [self.names[int(place)] for place in np.argmax(outputs, -1)]

    def figures(self, examples: Sequence[Any], predictions: list) -> dict[str, float]:
        of = {AMOUNT: float, SEVERAL: _names}.get(self.data.problem, str)
        found = {one.id: of(label) for one, label in zip(examples, predictions, strict=True)}
        return of_labels.figures({one.id: of(one.label) for one in examples}, found)

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        linear = LogisticRegression(max_iter=1000, C=10)
        models = {
            ONE: {"most frequent label": DummyClassifier(), "TF-IDF, linear": linear},
            SEVERAL: {"labels of most texts": DummyClassifier(), "TF-IDF, linear": OneVsRestClassifier(linear)},
            AMOUNT: {"mean": DummyRegressor(), "TF-IDF, linear": Ridge()},
        }[self.data.problem]
        train, tfidf = self.data.splits["train"], TfidfVectorizer(sublinear_tf=True)
        seen = tfidf.fit_transform(" ".join(one.texts) for one in train)
        unseen = tfidf.transform(" ".join(one.texts) for one in examples)
        found = {}
        for name, model in models.items():
            outputs = model.fit(seen, np.array([self._wanted(one) for one in train])).predict(unseen)
            if self.data.problem != AMOUNT:
                outputs = np.eye(len(self.names))[outputs] if self.data.problem == ONE else outputs - 0.5
            found[name] = self.decode(examples, [], outputs)
        return found


class Answers(Task):
    """Words of a text that answer a question; a prediction is the text and the probability that there is none."""

    lr, epochs, best = 3e-5, 3, "f1"
    threshold = 0.5  # the probability above which there is no answer

    def tune(self, model: nn.Module, predict: Callable[[str], list]) -> None:
        if self.has_unanswerable:
            self.threshold = self.figures(self.data.splits["valid"], predict("valid"))["best_f1_thresh"]
            model.config.no_answer_threshold = self.threshold
            print(f"  no answer above a probability of {self.threshold:.3f}, the best of validation")

    @property
    def has_unanswerable(self) -> bool:
        """Whether questions may have no answer, as in SQuAD v2."""
        return any(not one.answers for examples in self.data.splits.values() for one in examples)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        found = []
        for number, one in enumerate(examples):
            question = " ".join(one.texts[0].split()[:QUESTION_WORDS])
            for segments, row, inputs in self.segments(question, one.texts[1], truncation="only_second"):
                sides = zip(segments["offset_mapping"][row], segments.sequence_ids(row), strict=True)
                places = [span if side == 1 else None for span, side in sides]
                first, last = _tokens_of(one.answers, places)
                found.append({**inputs, "start_positions": first, "end_positions": last, "places": (number, places)})
        return found

    def smaller(self, logits: Any, labels: Any) -> Any:
        return logits[:2]

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list[tuple[str, float]]:
        best, none = [("", 0.0)] * len(examples), [1.0] * len(examples)
        for feature, start, end in zip(features, *outputs, strict=True):
            number, places = feature["places"]
            logits = (torch.from_numpy(np.asarray(x[: len(places)], np.float32)) for x in (start, end))
            inside = torch.tensor([place is not None for place in places])
            first, last, score, least = best_span(*logits, inside, ANSWER_TOKENS)
            none[number] = min(none[number], least)
            if score > best[number][1]:
                best[number] = examples[number].texts[1][places[first][0] : places[last][1]], score
        return [(text, least / max(score + least, 1e-30)) for (text, score), least in zip(best, none, strict=True)]

    def figures(self, examples: Sequence[Any], predictions: list) -> dict[str, float]:
        gold = {one.id: [one.texts[1][first:end] for first, end in one.answers] for one in examples}
        texts = {one.id: text for one, (text, _) in zip(examples, predictions, strict=True)}
        if not self.has_unanswerable:
            return squad.score_v1(gold, texts)
        chances = {one.id: chance for one, (_, chance) in zip(examples, predictions, strict=True)}
        return squad.score_v2(gold, texts, chances, self.threshold)

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        most = self.threshold if self.has_unanswerable else 1.0
        pairs = zip(examples, predictions, strict=True)
        return [json.dumps({json.loads(one.id)[0]: "" if none > most else text for one, (text, none) in pairs})]

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        none = {"never an answer": [("", 1.0)] * len(examples)} if self.has_unanswerable else {}
        tfidf = TfidfVectorizer().fit(one.texts[1] for one in self.data.splits["train"])
        found = []
        for one in examples:
            sentences = split_sentences(one.texts[1])
            likeness = tfidf.transform(sentences) @ tfidf.transform([one.texts[0]]).T
            found.append((sentences[int(likeness.toarray().argmax())], 0.0))
        return {**none, "TF-IDF, nearest sentence": found}


TASKS: dict[str, type[Task]] = {
    "summarization": Summaries,
    "classification": Labels,
    "question-answering": Answers,
}


def _tokens_of(answers: Sequence[tuple[int, int]], places: list) -> tuple[int, int]:
    """The first and the last token of the first answer that a segment has; 0 and 0, the first token, without any."""
    for begin, end in answers:
        inside = [n for n, place in enumerate(places) if place and place[0] < end and place[1] > begin]
        if inside and places[inside[0]][0] <= begin and places[inside[-1]][1] >= end:
            return inside[0], inside[-1]
    return 0, 0


def _names(label: str | Sequence[str]) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else tuple(label)
